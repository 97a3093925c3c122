// Package access says who may do what with which queues.
//
// A policy is a text of lines; blank ones and those that begin with # say nothing. A field with spaces stands in
// double quotes, as in Go. Each line gives rights to whoever presents a token or a client certificate:
//
//	token         NAME  SECRET  RIGHTS  [QUEUES]
//	token-sha256  NAME  HEX     RIGHTS  [QUEUES]
//	cert          NAME  SUBJECT RIGHTS  [QUEUES]
//
//	NAME     what the holder is called in logs; lines with one name belong together
//	SECRET   the bearer token, at least 16 characters; its SHA-256, 64 hexadecimal digits, keeps it out of the file
//	SUBJECT  cn:COMMON NAME, dns:NAME or uri:URI of the certificate, which must be signed by the server's client CA
//	RIGHTS   of send, receive and admin, separated by commas
//	QUEUES   patterns of queue names, separated by commas, in which * stands for any characters. Default *.
//
// For example:
//
//	token         shop     d0f3a6f2b8c14c61  send              orders,orders.*
//	token-sha256  workers  9f86d081…         receive           orders*
//	cert          ops      "cn:Ops Laptop"   send,receive,admin
//
// Several lines for one token or subject add up. Secrets are compared in constant time.
package access
