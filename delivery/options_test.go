package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
)

// §6: "zero is the default, negative an error …; nil handler, missing consumer, an id that the consumer would refuse are
// errors; a TTL under four times the backoff cap warns; all reported together at construction."
func TestOptionFaultsAreReportedTogether(t *testing.T) {
	_, err := delivery.NewProducerController(delivery.ProducerOptions[string]{
		ProducerID: strings.Repeat("x", 257), WindowSize: -1, WindowBytes: -1, BufferSize: -1,
		ResendTimeout: -1, ResendCap: -1, MaxFrameBytes: -1,
	})
	wantFaults(t, err, "Consumer", "ProducerID", "WindowSize", "WindowBytes", "BufferSize", "ResendTimeout", "ResendCap", "MaxFrameBytes")

	w := &wire[string]{}
	_, err = delivery.NewProducerController(delivery.ProducerOptions[string]{
		Consumer: w, Remote: &wire[[]byte]{}, WindowSize: delivery.MaxWindow + 1, ResendTimeout: time.Minute, ResendCap: time.Second, MaxFrameBytes: 1,
	})
	wantFaults(t, err, "Consumer and Remote", "WindowSize", "ResendCap", "MaxFrameBytes")

	_, err = delivery.NewConsumerController(delivery.ConsumerOptions[string]{
		MaxProducers: -1, ProducerIdleTTL: -1, MaxConcurrent: -1, MaxConcurrentPerProducer: -1, MaxWaiting: -1,
		MaxWaitingPerProducer: -1, MaxWaitingBytes: -1, MaxAssemblyBytes: -1,
	}, nil)
	wantFaults(t, err, "handler", "MaxProducers", "ProducerIdleTTL", "MaxConcurrent ", "MaxConcurrentPerProducer", "MaxWaiting ",
		"MaxWaitingPerProducer", "MaxWaitingBytes", "MaxAssemblyBytes")

	_, err = delivery.NewConsumerController(delivery.ConsumerOptions[string]{InOrder: true, MaxConcurrentPerProducer: 2}, ignore)
	wantFaults(t, err, "MaxConcurrentPerProducer of 2 contradicts InOrder")
}

func ignore(context.Context, string) error { return nil }

func wantFaults(t *testing.T, err error, names ...string) {
	t.Helper()
	if !errors.Is(err, delivery.ErrInvalidOption) {
		t.Fatalf("error %v", err)
	}
	if n := strings.Count(err.Error(), delivery.ErrInvalidOption.Error()); n != len(names) {
		t.Errorf("%d faults, want %d: %v", n, len(names), err)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), delivery.ErrInvalidOption.Error()+": "+name) {
			t.Errorf("no fault of %s in: %v", name, err)
		}
	}
}

func TestUnlimitedIsAllowed(t *testing.T) {
	c := newConsumer(t, delivery.ConsumerOptions[string]{
		MaxProducers: delivery.Unlimited, ProducerIdleTTL: delivery.UnlimitedTTL, MaxConcurrent: delivery.Unlimited,
		MaxWaiting: delivery.Unlimited, MaxWaitingPerProducer: delivery.Unlimited, MaxWaitingBytes: delivery.Unlimited,
		MaxAssemblyBytes: delivery.Unlimited,
	}, ignore)
	p := newProducer(t, delivery.ProducerOptions[string]{Consumer: c, WindowBytes: delivery.Unlimited, BufferSize: delivery.Unlimited})
	if err := p.Send(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
}

func TestTTLWarnings(t *testing.T) {
	for _, c := range []struct {
		name     string
		ttl      time.Duration
		resend   time.Duration
		consumer bool // whether the consumer warns,
		producer bool // whether the producer does
	}{
		{"defaults", 0, 0, false, false},
		{"short TTL", 39 * time.Second, 0, true, true},
		{"four times", 40 * time.Second, 0, false, false},
		{"long backoff", 0, 2 * time.Minute, false, true},
		{"unlimited", delivery.UnlimitedTTL, time.Hour, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lc, lp := &logs{}, &logs{}
			consumer := newConsumer(t, delivery.ConsumerOptions[string]{ProducerIdleTTL: c.ttl, Logger: lc.logger()}, ignore)
			newProducer(t, delivery.ProducerOptions[string]{Consumer: consumer, ResendCap: c.resend, Logger: lp.logger()})
			if got := len(lc.lines("ProducerIdleTTL")) > 0; got != c.consumer {
				t.Errorf("the consumer warns: %v", got)
			}
			if got := len(lp.lines("ProducerIdleTTL")) > 0; got != c.producer {
				t.Errorf("the producer warns: %v", got)
			}
		})
	}
}

// A window that the consumer cannot take whole is allowed, and warned of.
func TestWindowWarning(t *testing.T) {
	l := &logs{}
	c := newConsumer(t, delivery.ConsumerOptions[string]{MaxWaitingPerProducer: 100}, ignore)
	newProducer(t, delivery.ProducerOptions[string]{Consumer: c, WindowSize: 100, Logger: l.logger()})
	if n := len(l.lines("WindowSize")); n != 0 {
		t.Errorf("%d warnings of a window that fits", n)
	}
	newProducer(t, delivery.ProducerOptions[string]{Consumer: c, WindowSize: 101, Logger: l.logger()})
	if n := len(l.lines("WindowSize")); n != 1 {
		t.Errorf("%d warnings of a window that does not", n)
	}
}
