package broker

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a broker that logs nothing, and closes it at the end of the test.
func open(t *testing.T, j journal.Journal, o Options) *Broker {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	b, err := Open(t.Context(), j, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.crash() })
	return b
}

// crash ends a broker as the death of its process would: nothing is drained, no snapshot is written.
func (b *Broker) crash() {
	handles := b.reg.close()
	b.end()
	for _, h := range handles {
		<-h.ready
		if h.owner != nil {
			h.owner.actor.Kill()
			<-h.owner.actor.Done()
		}
	}
	b.work.Wait()
}

func shut(t *testing.T, b *Broker) {
	t.Helper()
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, q *holdfast.Queue, bodies ...string) []holdfast.ID {
	t.Helper()
	var out []holdfast.ID
	for _, body := range bodies {
		id, err := q.Send(t.Context(), holdfast.Message{Body: []byte(body)})
		if err != nil {
			t.Fatalf("send %q: %v", body, err)
		}
		out = append(out, id)
	}
	return out
}

// hand is a receiver that keeps what it gets, over the bare link.
type hand struct {
	mu     sync.Mutex
	runs   []holdfast.Run
	lost   []queue.LeaseSpan
	broken error
	got    chan struct{} // one element for anything new
}

func newHand() *hand { return &hand{got: make(chan struct{}, 1)} }

func (h *hand) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	select {
	case h.got <- struct{}{}:
	default:
	}
}

func (h *hand) Deliver(runs []holdfast.Run) { h.note(func() { h.runs = append(h.runs, runs...) }) }

func (h *hand) Lost(spans []queue.LeaseSpan, _ string) {
	h.note(func() { h.lost = append(h.lost, spans...) })
}

func (h *hand) Broken(err error) { h.note(func() { h.broken = err }) }

// count returns how many messages were handed over.
func (h *hand) count() (n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		n += r.Count
	}
	return n
}

// bodies returns the bodies that were handed over, in order.
func (h *hand) bodies(t *testing.T) (out []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		c := message.NewSpanCursor(r.Data)
		for raw, ok := c.Next(); ok; raw, ok = c.Next() {
			out = append(out, string(raw.Body))
		}
	}
	return out
}

func (h *hand) spans() (out []queue.LeaseSpan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		out = append(out, r.LeaseSpan)
	}
	return out
}

// until waits until cond holds, looking again whenever the hand gets something.
func (h *hand) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	for !cond() {
		select {
		case <-h.got:
		case <-timeout:
			t.Fatalf("waited in vain: %s (%d messages, broken: %v)", what, h.count(), h.broken)
		}
	}
}

func receive(t *testing.T, b *Broker, name string, c holdfast.ReceiverConfig, credit uint64) (*hand, holdfast.ReceiverLink, holdfast.ReceiverOpened) {
	t.Helper()
	h := newHand()
	link, opened, err := b.OpenReceiver(t.Context(), name, c, h)
	if err != nil {
		t.Fatal(err)
	}
	if credit > 0 {
		link.Credit(credit, 1<<40)
	}
	return h, link, opened
}

// settled does one settling call and waits for its outcome.
func settled(t *testing.T, call func(reply holdfast.Outcomes)) []queue.Outcome {
	t.Helper()
	type result struct {
		o   []queue.Outcome
		err error
	}
	done := make(chan result, 1)
	call(func(o []queue.Outcome, err error) { done <- result{o, err} })
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.o
}

func describe(t *testing.T, b *Broker, name string) holdfast.QueueInfo {
	t.Helper()
	info, err := b.Admin().Describe(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// pass lets virtual time pass: it is called inside of synctest.Test alone.
func pass(d time.Duration) {
	time.Sleep(d) //holdfast:allow sleep: virtual time
}
