package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
	"github.com/holdfastmq/holdfast/delivery/durable"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, j journal.Journal, o durable.Options) *durable.Producer {
	t.Helper()
	d, err := durable.Open(t.Context(), j, "sender", o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func start(t *testing.T, to delivery.Link[int], d *durable.Producer) *delivery.ProducerController[int] {
	t.Helper()
	p, err := delivery.NewProducerController(delivery.ProducerOptions[int]{Consumer: to, Journal: d})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tally counts how often each number was handled.
type tally struct {
	mu sync.Mutex
	n  map[int]int
}

func (c *tally) handle(_ context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[int]int{}
	}
	c.n[i]++
	return nil
}

func consumer(t *testing.T, handle func(context.Context, int) error) *delivery.ConsumerController[int] {
	t.Helper()
	c, err := delivery.NewConsumerController(delivery.ConsumerOptions[int]{}, handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-c.Stopped()
	})
	return c
}

// silent is a link over which nothing arrives.
type silent struct {
	mu  sync.Mutex
	got []uint64
}

func (s *silent) Deliver(d delivery.Delivery[int]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range d.Bodies {
		s.got = append(s.got, d.Seq+uint64(i))
	}
	return nil
}

func (s *silent) Farewell(delivery.Farewell) error { return nil }

func (s *silent) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.got)
}

// Design §6, durable producer: "resumes after a crash": the same id and incarnation, the next number, and what was
// unconfirmed goes again under its numbers.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := memory.NewStore(memory.Options{})
		nowhere := &silent{}
		d := open(t, store.Open(), durable.Options{ProducerID: "payments"})
		p := start(t, nowhere, d)
		id, incarnation := p.ID(), p.Incarnation()
		for i := range 5 {
			if err := p.PostFunc(t.Context(), 100+i, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		store.Crash()
		p.Close()
		<-p.Stopped()

		var got tally
		c := consumer(t, got.handle)
		d = open(t, store.Open(), durable.Options{})
		if st := d.State(); st.Next != 6 || len(st.Unconfirmed) != 5 || st.Unconfirmed[4].Seq != 5 {
			t.Fatalf("resumed with %+v", st)
		}
		p = start(t, c, d)
		if p.ID() != id || p.ID() != "payments" || p.Incarnation() != incarnation {
			t.Errorf("resumed as %s %s, was %s %s", p.ID(), p.Incarnation(), id, incarnation)
		}
		if err := p.Send(t.Context(), 105); err != nil {
			t.Fatal(err)
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-p.Stopped()
		for i := range 6 {
			if got.n[100+i] != 1 {
				t.Errorf("%d handled %d times", 100+i, got.n[100+i])
			}
		}
		if c.TrackedProducers() != 0 {
			t.Error("a clean close did not free the consumer's entry")
		}
		// Everything is settled, in the journal too.
		d = open(t, store.Open(), durable.Options{})
		if st := d.State(); st.Next != 7 || len(st.Unconfirmed) != 0 {
			t.Errorf("left in the journal: %+v", st)
		}
		_ = d.Close(t.Context())
	})
}

// Design §6: "sends a seq only after storing it", "batched, not one store round trip a message".
func TestStoredBeforeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := memory.NewStore(memory.Options{})
		j := fault.New(store.Open(), fault.Options{})
		nowhere := &silent{}
		d := open(t, j, durable.Options{})
		p := start(t, nowhere, d)
		synctest.Wait()
		before := j.Count(fault.Append)
		j.Pause()
		for i := range 16 {
			if err := p.PostFunc(t.Context(), i, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := nowhere.seen(); s != "[]" {
			t.Fatalf("sent before it was stored: %s", s)
		}
		j.Resume()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if s := nowhere.seen(); s != "[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]" {
			t.Errorf("sent %s", s)
		}
		if n := j.Count(fault.Append) - before; n > 3 {
			t.Errorf("%d appends for 16 messages that came at once", n)
		}
		p.Close()
		<-p.Stopped()
	})
}

// Design §6: "fenced by its stream's epoch". The one that was there before ends by itself, within a second of the
// first thing that it wanted to store, and settles every confirmation.
func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := memory.NewStore(memory.Options{})
		nowhere := &silent{}
		old := start(t, nowhere, open(t, store.Open(), durable.Options{}))
		var outcome []error
		_ = old.PostFunc(t.Context(), 1, func(err error) { outcome = append(outcome, err) })
		synctest.Wait()
		d := open(t, store.Open(), durable.Options{})
		if st := d.State(); len(st.Unconfirmed) != 1 {
			t.Fatalf("%+v", st)
		}
		_ = old.PostFunc(t.Context(), 2, func(err error) { outcome = append(outcome, err) })
		<-old.Stopped()
		if len(outcome) != 2 {
			t.Fatalf("%d confirmations", len(outcome))
		}
		for _, err := range outcome {
			if !errors.Is(err, delivery.ErrFenced) || !errors.Is(err, delivery.ErrUnconfirmed) || !errors.Is(err, delivery.ErrStopped) {
				t.Errorf("confirmation: %v", err)
			}
		}
		if err := old.Send(t.Context(), 3); !errors.Is(err, delivery.ErrFenced) || !errors.Is(err, delivery.ErrNotSent) {
			t.Errorf("send after the fence: %v", err)
		}
		if s := nowhere.seen(); s != "[1]" {
			t.Errorf("the fenced one sent %s", s)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A full store holds senders; nothing is lost and all goes on when there is room.
func TestFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := memory.NewStore(memory.Options{})
		j := fault.New(store.Open(), fault.Options{})
		var got tally
		p := start(t, consumer(t, got.handle), open(t, j, durable.Options{}))
		if err := p.Send(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		j.SetFull(true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Send(ctx, 1); !errors.Is(err, delivery.ErrUnconfirmed) {
			t.Errorf("send to a full store: %v", err)
		}
		if got.n[1] != 0 {
			t.Error("sent before it was stored")
		}
		j.SetFull(false)
		if err := p.Send(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := p.Shutdown(t.Context()); err != nil || got.n[1] != 1 || got.n[2] != 1 {
			t.Errorf("%v, handled %v", err, got.n)
		}
		<-p.Stopped()
	})
}

// What the journal cannot take is refused before it gets a number, and other faults are told at once.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := memory.NewStore(memory.Options{MaxRecordBytes: 10_000})
		d := open(t, store.Open(), durable.Options{ProducerID: "a"})
		p, err := delivery.NewProducerController(delivery.ProducerOptions[[]byte]{Remote: &nothing{}, Codec: delivery.Raw(), Journal: d})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Offer(make([]byte, d.MaxBodyBytes()), nil); err != nil {
			t.Error("the largest body was refused:", err)
		}
		if err := p.Offer(make([]byte, d.MaxBodyBytes()+1), nil); !errors.Is(err, delivery.ErrTooLarge) || !errors.Is(err, delivery.ErrNotSent) {
			t.Errorf("a larger one: %v", err)
		}
		synctest.Wait()
		if st := p.Stats(); st.NextSeq != 2 {
			t.Errorf("%+v", st)
		}
		p.Close()
		<-p.Stopped()

		if _, err := durable.Open(t.Context(), store.Open(), "sender", durable.Options{ProducerID: "b"}); !errors.Is(err, delivery.ErrInvalidOption) {
			t.Errorf("opened as another producer: %v", err)
		}
		if _, err := durable.Open(t.Context(), store.Open(), "other", durable.Options{ProducerID: strings.Repeat("x", 257)}); !errors.Is(err, delivery.ErrInvalidOption) {
			t.Errorf("a long id: %v", err)
		}
		d = open(t, store.Open(), durable.Options{})
		if st := d.State(); len(st.Unconfirmed) != 1 || len(st.Unconfirmed[0].Body) != d.MaxBodyBytes() {
			t.Errorf("resumed %d messages", len(st.Unconfirmed))
		}
		_, err = delivery.NewProducerController(delivery.ProducerOptions[int]{Consumer: &silent{}, Journal: d, ProducerID: "b"})
		if !errors.Is(err, delivery.ErrInvalidOption) {
			t.Errorf("a controller of another id: %v", err)
		}
		if _, err = delivery.NewProducerController(delivery.ProducerOptions[int]{Consumer: &silent{}, Journal: d}); err == nil {
			t.Error("a stored message that does not decode was ignored")
		}
		_ = d.Close(t.Context())
	})
}

type nothing struct{}

func (nothing) Deliver(delivery.Delivery[[]byte]) error { return nil }
func (nothing) Farewell(delivery.Farewell) error        { return nil }

// "The crash of the sender costs neither loss nor duplicates": a sender whose n-th message has number n is killed at
// random moments, over a lossy network and a journal whose appends fail before and after they took effect, its zombie
// going on for a while. The consumer handles each message exactly once.
func TestCrashesCostNothing(t *testing.T) {
	runs := uint64(60)
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		runs = 2000
	}
	t.Logf("seeds 1…%d", runs)
	for seed := uint64(1); seed <= runs && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { crashes(t, seed) })
	}
}

func crashes(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	const total = 80
	var got tally
	c := consumer(t, func(ctx context.Context, i int) error {
		if m, _ := delivery.MetadataOf(ctx); m.Seq != uint64(i) {
			t.Errorf("seed %d: message %d has number %d", seed, i, m.Seq)
		}
		return got.handle(ctx, i)
	})
	network := deliverytest.NewNetwork(seed, deliverytest.Faults{Drop: 0.3, Duplicate: 0.1, MaxDelay: 200 * time.Millisecond})
	link := deliverytest.Over(network, delivery.Link[int](c))
	store, _ := memory.NewStore(memory.Options{EpochRecords: seed%2 == 0})
	options := durable.Options{Actor: persistent.Options{SnapshotEvents: 1 + int64(r.IntN(30))}}
	var zombies []*delivery.ProducerController[int]
	for life := 0; ; life++ {
		j := fault.New(store.Open(), fault.Options{})
		j.SetPlan(fault.Seeded(seed<<8|uint64(life), fault.Rates{Before: 0.1, After: 0.1, MaxDelay: 50 * time.Millisecond}))
		d, err := durable.Open(t.Context(), j, "sender", options)
		if err != nil {
			if life > 200 {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue // the store did not answer
		}
		p := start(t, link, d)
		next := int(p.Stats().NextSeq)
		stop := total + 1
		if life < 6 {
			stop = next + r.IntN(30)
		}
		for ; next <= total && next < stop; next++ {
			if err := p.PostFunc(t.Context(), next, nil); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if r.IntN(4) == 0 {
				<-time.After(time.Duration(r.IntN(300)) * time.Millisecond)
			}
		}
		if next <= total {
			zombies = append(zombies, p) // it lives on until it notices that it was fenced
			continue
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		<-p.Stopped()
		break
	}
	for _, z := range zombies {
		z.Close()
		<-z.Stopped()
	}
	for i := 1; i <= total; i++ {
		if got.n[i] != 1 {
			t.Errorf("seed %d: message %d handled %d times", seed, i, got.n[i])
		}
	}
}

// One record of each kind, as version 1 writes them, and what a later version's looks like to this one.
func TestFormat(t *testing.T) {
	store, _ := memory.NewStore(memory.Options{})
	j := store.Open()
	d := open(t, j, durable.Options{ProducerID: "p"})
	if err := d.Append(t.Context(), 1, [][]byte{[]byte("one"), {}, []byte("three")}); err != nil {
		t.Fatal(err)
	}
	if err := d.Append(t.Context(), 2, [][]byte{{}, []byte("three")}); err != nil {
		t.Error("what is stored already must be taken for done:", err)
	}
	if err := d.Append(t.Context(), 9, [][]byte{{}}); err == nil {
		t.Error("a gap was stored")
	}
	if err := d.Settled([]delivery.SeqRange{{First: 1, Last: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Append(t.Context(), 4, [][]byte{{}}); !errors.Is(err, delivery.ErrStopped) {
		t.Errorf("append after Close: %v", err)
	}
	d = open(t, j, durable.Options{})
	st := d.State()
	if st.Next != 4 || len(st.Unconfirmed) != 1 || st.Unconfirmed[0].Seq != 3 || !bytes.Equal(st.Unconfirmed[0].Body, []byte("three")) {
		t.Errorf("%+v", st)
	}
	_ = d.Close(t.Context())
}
