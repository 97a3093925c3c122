// Command peers measures other queues beside Holdfast, in turns, on one machine: the same payloads, windows and process layout, each in its best documented
// configuration for its durability, acknowledged message by message where it can.
//
//	go run ./bench/peers -holdfast bin/holdfast -servers DIR -runs 5 -out docs/peers
//
// servers/ has the scripts that get the peers' servers from packages. Each peer is a file of its own here:
//
//	main.go      flags, and the turns
//	peer.go      what a peer is
//	client.go    the client processes: senders and receivers, the same for all peers
//	process.go   starting them, and servers
//	holdfast.go  Holdfast, by its own "bench"
//	table.go     medians, ratios, table and JSON
package main
