// Command peers measures other queues beside Holdfast, in turns, on one machine: the same payloads, windows and process layout, each in its best documented
// configuration for its durability, acknowledged message by message where it can.
//
//	make bench-peers PEERS='-runs 3 -duration 2s -peers kafka,redis'
//
// servers/get gets the peers' servers from packages, and compiles servers/java, our clients of peers whose best client library is a Java one.
// Each peer is a file of its own here; the rest is:
//
//	main.go      flags
//	bench.go     the turns; what fails and what is interrupted
//	plan.go      how long it takes
//	own.go       Holdfast, by its own "bench"
//	peer.go      what a peer is
//	measure.go   the workloads, and one measurement
//	client.go    the client processes: senders and receivers, the same for all peers (servers/java/Client.java does the same)
//	batcher.go   windows of peers that take many messages in a request
//	inorder.go   windows of clients that give something to wait on for each send
//	process.go   starting and ending client processes and servers
//	guard.go     ends what is left if this process is killed
//	syncs.go     whether a peer syncs
//	table.go     medians, ratios, table and JSON
//	chart.go     the chart
package main
