package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// peer is a queue in one configuration.
type peer struct {
	name string
	// about says what an acknowledgement means there.
	about string
	// synced tells that a message is on stable storage before its sender is answered.
	synced bool
	// kinds are the kinds of load that are measured, none for all.
	kinds []string
	// shares is the same for peers that are clients of one and the same server, which is started once for all of them.
	shares string
	// warm is for how long at least all of it works before what counts, where code is compiled while it runs.
	warm time.Duration
	// start starts the server, with its files in a new directory.
	start func(ctx context.Context, e *env, dir string) (*server, error)
	// connect makes a client. It is called in the client's process, and in the one that makes the queues.
	connect func(ctx context.Context, addr string) (conn, error)
	// program is the client program where that is not this one, which it is for what it returns nil.
	program func(e *env, s spec) []string
	// ready tells that a receiver that says that it is ready gets whatever is sent from then on at once; other receivers are sent a message first.
	ready bool
	// embedded tells that the queue is a library: sender and receiver are one process, and there is no server.
	embedded bool
	// version tells what is measured.
	version func(ctx context.Context, e *env) string
}

// does tells whether the peer is measured under a load.
func (p *peer) does(l load) bool { return len(p.kinds) == 0 || slices.Contains(p.kinds, l.kind) }

// conn is a client of a peer.
type conn interface {
	// create makes a queue.
	create(ctx context.Context, queue string) error
	// sender returns a sender with at most so many messages unanswered.
	sender(ctx context.Context, queue string, window int) (sender, error)
	// receive calls got for each message that the user has, and done with how many acknowledgements have been made, confirmed if
	// the peer confirms them. It returns when ctx ends. Both may be called by several goroutines.
	receive(ctx context.Context, queue string, got func(body []byte), done func(n int)) error
	close()
}

// sender sends to one queue.
type sender interface {
	// send waits for room in the window, and calls done once the message is stored. Nobody changes body afterwards.
	send(ctx context.Context, body []byte, done func(error)) error
	// flush waits until everything is answered.
	flush(ctx context.Context) error
}

// known are the peers that can be measured.
func known() []*peer {
	return slices.Concat(kafkas(), redises(), natses(), []*peer{artemisPeer(), rabbitPeer(), postgresPeer(), riverPeer(), goqitePeer()})
}

// extra are peers of tests.
var extra []*peer

// find returns peers by their names, or by what their names begin with up to a hyphen.
func find(names string) (found []*peer, err error) {
	known := append(known(), extra...)
	for _, name := range strings.Split(names, ",") {
		n := len(found)
		for _, p := range known {
			if p.name == name {
				found = append(found[:n], p)
				break
			}
			if strings.HasPrefix(p.name, name+"-") {
				found = append(found, p)
			}
		}
		if len(found) == n {
			var have []string
			for _, p := range known {
				have = append(have, p.name)
			}
			return nil, fmt.Errorf("there is no peer %q; there are %s", name, strings.Join(have, ", "))
		}
	}
	return found, nil
}
