// Package mongodb is a journal on MongoDB: URL
//
//	mongodb://[USER:PASSWORD@]HOST[:PORT][,HOST…]/[DATABASE][?OPTION=VALUE&…]      (or mongodb+srv://)
//
// The one primitive that it relies on is that a document whose _id is taken cannot be inserted. Each stream has two lanes of numbered
// documents: its records, and its control states (the highest counts). A change is the insertion at the next
// number of a lane; Acquire inserts a mark into the record lane that no discard ever removes, so that whatever an older owner
// sends late finds its number taken. Every write is acknowledged by a majority that has it in its journal (w: majority,
// j: true).
//
// Replica sets and standalone servers are served, sharded clusters are not. The layout and its reasons are in
// docs/decisions/mongodb.md.
package mongodb
