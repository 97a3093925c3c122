// Package adminpb says what the messages of the administrative calls (proto/holdfast/v1/admin.proto) mean in Go: each
// of the From functions makes a message of a Go value, each of the To functions the value again. Broker and
// client share it, so that a call over a connection says what it says in process.
//
// Package holdfastv1 below it is generated; "make proto" does that.
package adminpb
