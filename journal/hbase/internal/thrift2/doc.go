// Package thrift2 is the generated client of HBase's Thrift2 gateway, from an interface file (gateway.thrift) that has only
// the calls and structs which the journal uses.
package thrift2

//go:generate ./generate.sh
