package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/message"
)

// The defaults of Options.
const (
	DefaultHeartbeat = time.Second
	DefaultExpiry    = 3 * time.Second
)

// Options are what a node is opened with. The zero value means the defaults, where there are any; negative numbers are
// errors, reported together.
type Options struct {
	// Broker are the options of the broker in the node. Its Cluster is set by the node, its Name defaults to Address.
	Broker broker.Options
	// Address is where clients and other brokers reach this broker. It is its id too: a broker that comes back under the same
	// address has the same queues. It must be set.
	Address string
	// Heartbeat is how often the broker's entry in the store is renewed. Default 1 s.
	Heartbeat time.Duration
	// Expiry is after which time without a renewal a broker is taken for dead, by others and by itself. Default 3 s; at least
	// three times Heartbeat. All brokers of a journal should have the same.
	Expiry time.Duration
	// Dial makes a link to another broker, which must not send on what it is asked but answer for itself. nil: other
	// brokers are not reached, and calls about their queues fail.
	Dial func(ctx context.Context, p Peer) (PeerLink, error)
	// Secret is the token by which other brokers identify themselves to this one, empty for none.
	Secret string
	// Pin, if not nil, returns the SHA-256 of the TLS certificate of this broker in hexadecimal. It is called with each beat.
	Pin func() string
}

// Peer is another broker.
type Peer struct {
	Address string
	// Secret is the token that it takes from other brokers.
	Secret string
	// Pin is the SHA-256 of its TLS certificate in hexadecimal, empty without TLS.
	Pin string
}

// PeerLink is a link to another broker.
type PeerLink interface {
	holdfast.Link
	// Close ends the link. It is called once.
	Close()
}

func (o *Options) setDefaults() error {
	var errs []error
	if o.Address == "" || len(o.Address) > 200 {
		errs = append(errs, &message.FieldError{Field: "Address", Fault: fmt.Sprintf("is %q", o.Address), Limit: "1 to 200 bytes"})
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{{"Heartbeat", &o.Heartbeat, DefaultHeartbeat}, {"Expiry", &o.Expiry, max(DefaultExpiry, 3*o.Heartbeat)}} {
		if *f.v < 0 {
			errs = append(errs, &message.FieldError{Field: f.name, Fault: fmt.Sprintf("is %v", *f.v), Limit: "0 or more"})
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.Heartbeat > 0 && o.Expiry > 0 && o.Expiry < 3*o.Heartbeat {
		errs = append(errs, &message.FieldError{Field: "Expiry", Fault: fmt.Sprintf("is %v", o.Expiry), Limit: fmt.Sprintf("%v, three times the heartbeat, or more", 3*o.Heartbeat)})
	}
	if o.Broker.Name == "" {
		o.Broker.Name = o.Address
	}
	return errors.Join(errs...)
}
