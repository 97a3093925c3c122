package delivery_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/delivery"
)

// newConsumer starts a consumer that the test closes at its end.
func newConsumer[T any](t testing.TB, o delivery.ConsumerOptions[T], handle func(context.Context, T) error) *delivery.ConsumerController[T] {
	t.Helper()
	c, err := delivery.NewConsumerController(o, handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-c.Stopped()
	})
	return c
}

func newProducer[T any](t testing.TB, o delivery.ProducerOptions[T]) *delivery.ProducerController[T] {
	t.Helper()
	p, err := delivery.NewProducerController(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		<-p.Stopped()
	})
	return p
}

// wire is a link that keeps what it is given, for a test to look at and to answer.
type wire[B any] struct {
	mu        sync.Mutex
	delivered []delivery.Delivery[B]
	farewells []delivery.Farewell
	err       error
}

func (w *wire[B]) Deliver(d delivery.Delivery[B]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.Bodies = append([]B(nil), d.Bodies...)
	w.delivered = append(w.delivered, d)
	return w.err
}

func (w *wire[B]) Farewell(f delivery.Farewell) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.farewells = append(w.farewells, f)
	return nil
}

// take returns what came since the last call.
func (w *wire[B]) take() []delivery.Delivery[B] {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.delivered
	w.delivered = nil
	return d
}

func (w *wire[B]) lastWords() []delivery.Farewell {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.farewells
}

// collector is a ReplyTo that keeps the acknowledgements it is given.
type collector struct {
	mu   sync.Mutex
	acks []delivery.Acknowledgment
	err  error
	boom bool
}

func (c *collector) Acknowledge(acks []delivery.Acknowledgment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boom {
		panic("the acknowledgement's way is broken")
	}
	c.acks = append(c.acks, acks...)
	return c.err
}

func (c *collector) take() []delivery.Acknowledgment {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.acks
	c.acks = nil
	return a
}

// logs is a logger whose lines a test can count.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the lines that contain text.
func (l *logs) lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
