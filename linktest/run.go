package linktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
)

// Options are how a run goes. The zero value is a run without faults.
type Options struct {
	// Seed decides everything that is random here; what is decided by time and the scheduler beside it is not.
	Seed uint64
	// Life of a stream on average; 0 means that streams do not break. Lag is how late what goes over it comes at most.
	Life, Lag time.Duration
	// Senders and Messages of each. Defaults 3 and 300.
	Senders, Messages int
	// Consumers. Default 2.
	Consumers int
	// Patience is how long the run may take in all. Default 1 h, which is meant for virtual time.
	Patience time.Duration
	// Heal, if set, is called when faults are to end: all is handled, and consumers are about to be ended, who answer what they have
	// within the time that Consume has for it. It ends those faults that are not of Run's making.
	Heal func()
}

// Run sends and consumes a queue by random, over a link that fails by random, and then compares what users were told with what
// consumers saw. The queue, called "run", must be empty at first; it is at the end.
//
//   - What was told to be stored was handed out (G1, G2), under one id (G3), and what was told not to be stored was not (G10).
//   - Each sender's messages have ids in the order of its sends (G6).
//   - Each message was handled; all of it comes to an end (G9).
func Run(t testing.TB, link holdfast.Link, o Options) {
	t.Helper()
	o.Senders, o.Messages = cmp.Or(o.Senders, 3), cmp.Or(o.Messages, 300)
	o.Consumers, o.Patience = cmp.Or(o.Consumers, 2), cmp.Or(o.Patience, time.Hour)
	f := NewFaulty(link, o.Seed, o.Life, o.Lag)
	h := &history{
		t: t, o: o,
		q:    holdfast.NewQueue("run", f, holdfast.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}),
		sent: map[string]error{}, ids: map[string]holdfast.ID{},
		seen: map[string]map[holdfast.ID]int{}, handled: map[string]int{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var senders, consumers sync.WaitGroup
	for who := range o.Senders {
		senders.Go(func() { h.send(who) })
	}
	for who := range o.Consumers {
		consumers.Go(func() { h.consume(ctx, who) })
	}
	senders.Wait()
	for deadline := time.Now().Add(o.Patience); ; {
		depth, err := h.depth(link)
		if depth == 0 && err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("G2, G9: %d messages are not handled after %v (%v)", depth, o.Patience, err)
			h.cut = true
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	f.Heal()
	if o.Heal != nil {
		o.Heal()
	}
	cancel()
	consumers.Wait()
	h.judge()
}

// history is what a run told its users.
type history struct {
	t testing.TB
	o Options
	q *holdfast.Queue

	cut     bool // not all was handed out: nothing can be said of what nobody saw
	mu      sync.Mutex
	sent    map[string]error       // outcome by body; nil is stored
	ids     map[string]holdfast.ID // that senders were told
	seen    map[string]map[holdfast.ID]int
	handled map[string]int // handlers that returned nil
}

func (h *history) depth(link holdfast.Link) (int, error) {
	info, err := link.Admin().Describe(context.Background(), h.q.Name())
	return int(info.Stats.Depth), err
}

func (h *history) outcome(body string, id holdfast.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.sent[body]; ok {
		h.t.Errorf("G10: two outcomes of %s", body)
	}
	h.sent[body] = err
	if id.Seq != 0 {
		h.ids[body] = id
	}
}

// send sends messages by both forms, with contexts that end now and then.
func (h *history) send(who int) {
	rng := rand.New(rand.NewPCG(h.o.Seed, uint64(who)))
	s, err := h.q.NewSender(holdfast.SenderOptions{MaxInFlight: 1 + rng.IntN(50), NoWait: who == 2})
	if err != nil {
		h.t.Error(err)
		return
	}
	for i := range h.o.Messages {
		body := fmt.Sprintf("%d/%d", who, i)
		m := holdfast.Message{Body: []byte(body)}
		if rng.IntN(3) == 0 {
			m.Headers = []holdfast.Header{{Name: "n", Value: body}}
		}
		if rng.IntN(4) > 0 {
			if err := s.SendAsync(context.Background(), m, func(id holdfast.ID, err error) { h.outcome(body, id, err) }); err != nil {
				h.t.Errorf("send %s: %v", body, err)
			}
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(200))*time.Millisecond)
			id, err := s.Send(ctx, m)
			cancel()
			h.outcome(body, id, err)
		}
		if rng.IntN(10) == 0 {
			<-time.After(time.Duration(rng.IntN(40)) * time.Millisecond)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		h.t.Errorf("close sender: %v", err)
	}
}

// consume handles messages until ctx ends; handlers are slow, fail and panic now and then.
func (h *history) consume(ctx context.Context, who int) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(h.o.Seed, uint64(100+who)))
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	err := h.q.Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
		h.mu.Lock()
		if h.seen[string(d.Body)] == nil {
			h.seen[string(d.Body)] = map[holdfast.ID]int{}
		}
		h.seen[string(d.Body)][d.ID]++
		h.mu.Unlock()
		if len(d.Headers) > 0 && d.Headers[0].Value != string(d.Body) {
			h.t.Errorf("message %q has the header of %q", d.Body, d.Headers[0].Value)
		}
		if roll(3) == 0 {
			select {
			case <-time.After(time.Duration(roll(100)) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch roll(30) {
		case 0:
			return errors.New("no")
		case 1:
			panic("oh")
		case 2:
			return holdfast.GiveBack(nil)
		case 3:
			return holdfast.RetryAfter(time.Second, nil)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.handled[string(d.Body)]++
		return nil
	}, holdfast.ConsumeOptions{Workers: 1 + roll(4), Prefetch: roll(3) * 20})
	if err != nil {
		h.t.Errorf("consume: %v", err)
	}
}

// judge compares what users were told with what consumers saw.
func (h *history) judge() {
	t := h.t
	stored, refused, unknown, again := 0, 0, 0, 0
	for body, err := range h.sent {
		switch {
		case err == nil:
			if stored++; h.seen[body] == nil && !h.cut {
				t.Errorf("G1: %s was told to be stored, and nobody saw it", body)
			}
		case errors.Is(err, holdfast.ErrUnknown):
			unknown++
		default:
			if refused++; h.seen[body] != nil {
				t.Errorf("G10: %s was handed out, and was told not to be stored: %v", body, err)
			}
		}
	}
	type place struct {
		body string
		id   holdfast.ID
	}
	var places []place
	for body, ids := range h.seen {
		if len(ids) != 1 {
			t.Errorf("G3: %s is stored under %v", body, slices.Collect(maps.Keys(ids)))
		}
		for id, n := range ids {
			if told := h.ids[body]; told.Seq != 0 && told != id {
				t.Errorf("%s was told to be %v and is %v", body, told, id)
			}
			again += n - 1
			places = append(places, place{body, id})
		}
		if h.handled[body] == 0 && !h.cut {
			t.Errorf("G2: %s is gone, and nobody handled it", body)
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.id.Seq, b.id.Seq) })
	last := map[string]int{}
	for _, p := range places {
		who, num, _ := strings.Cut(p.body, "/")
		var k int
		if _, err := fmt.Sscan(num, &k); err != nil {
			t.Errorf("never sent: %q", p.body)
		}
		if k < last[who] {
			t.Errorf("G6: %s comes after %d", p.body, last[who])
		}
		last[who] = k
	}
	if want := h.o.Senders * h.o.Messages; len(h.sent) != want {
		t.Errorf("G10: %d outcomes of %d messages", len(h.sent), want)
	}
	t.Logf("%d stored, %d refused, %d unknown, %d handed out again", stored, refused, unknown, again)
}
