// Package hbase is a journal in Apache HBase, through its Thrift2 gateway: URL
// hbase://HOST:PORT[,HOST:PORT…]/[NAMESPACE:]TABLE. Several processes can share one.
//
// A stream is a chain of rows, the buckets. A bucket has a head, one cell that tells where the stream ends, under which
// epoch and who may write, with the metas and bodies of its records beside it. An append is one
// check-and-mutate on that cell; the append that fills a bucket closes its head in the same operation, after which the
// head never changes; the next bucket's is made where there is none yet. Heads are never deleted, so that whoever was held up
// finds a head in its way, never a gap. One more row a stream has its parts, behind a fence of their own.
//
// Every mutation asks for FSYNC_WAL, and so does the table. What stands behind the gateway cannot be asked: that
// the write-ahead log is on a file system that syncs is declared in the URL (synced=true).
//
// docs/decisions/hbase.md has the layout and its reasons.
package hbase
