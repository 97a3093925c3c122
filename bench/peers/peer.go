package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// peer is a queue in one configuration.
type peer struct {
	name string
	// about says what an acknowledgement means there.
	about string
	// synced tells that a message is on stable storage before its sender is answered.
	synced bool
	// only is the one kind of load that is measured, empty for all.
	only string
	// start starts the server, with its files in a new directory.
	start func(ctx context.Context, e *env, dir string) (*server, error)
	// connect makes a client. It is called in the client's process.
	connect func(ctx context.Context, addr string) (conn, error)
}

// conn is a client of a peer.
type conn interface {
	// create makes a queue.
	create(ctx context.Context, queue string) error
	// sender returns a sender with at most so many messages unanswered.
	sender(ctx context.Context, queue string, window int) (sender, error)
	// receive calls handle for each message and acknowledges it, until ctx ends. handle may be called by several goroutines.
	receive(ctx context.Context, queue string, handle func(body []byte)) error
	close()
}

// sender sends to one queue.
type sender interface {
	// send waits for room in the window, and calls done once the message is stored. Nobody changes body afterwards.
	send(ctx context.Context, body []byte, done func(error)) error
	// flush waits until everything is answered.
	flush(ctx context.Context) error
}

// all are the peers that can be measured.
func all() []*peer { return slices.Concat(kafkas(), redises(), natses(), extra) }

// extra are peers of tests.
var extra []*peer

// find returns peers by their names.
func find(names string) (found []*peer, err error) {
	known := all()
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(known, func(p *peer) bool { return p.name == name })
		if i < 0 {
			var have []string
			for _, p := range known {
				have = append(have, p.name)
			}
			return nil, fmt.Errorf("there is no peer %q; there are %s", name, strings.Join(have, ", "))
		}
		found = append(found, known[i])
	}
	return found, nil
}
