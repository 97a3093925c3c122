package broker

import (
	"context"
	"iter"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// slowReads is a journal whose bodies are read only once they may be.
type slowReads struct {
	journal.Journal
	asked chan struct{} // gets an element for each read that waits
	may   chan struct{}
}

func newSlowReads() *slowReads {
	return &slowReads{Journal: memory.New(), asked: make(chan struct{}, 1000), may: make(chan struct{})}
}

type slowStream struct {
	journal.Stream
	j *slowReads
}

func (j *slowReads) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	s, err := j.Journal.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return &slowStream{s, j}, nil
}

func (s *slowStream) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	s.j.asked <- struct{}{}
	<-s.j.may
	return s.Stream.ReadBodies(ctx, first)
}

// G2: messages that are purged while their bodies are read for a hand-over are not taken for damage; those behind them are handed over.
func TestPurgeDuringRead(t *testing.T) {
	j := newSlowReads()
	b := open(t, j, Options{CacheBytes: 1})
	q := b.Queue("q")
	send(t, q, "a", "b")
	h, _, opened := receive(t, b, "q", holdfast.ReceiverConfig{}, 10)
	<-j.asked
	send(t, q, "c") // waits behind them
	if n, err := q.Purge(t.Context()); err != nil || n != 3 {
		t.Fatalf("purge: %d, %v", n, err)
	}
	// The bodies of all three are given back before the read goes on.
	s, err := j.Open(t.Context(), StreamName("q"))
	if err != nil {
		t.Fatal(err)
	}
	for alive := true; alive; {
		alive = false
		for _, err := range s.ReadBodies(t.Context(), []uint64{1, 2, 3, 4, 5, 6, 7, 8}) {
			if err != nil {
				t.Fatal(err)
			}
			alive = true
		}
	}
	close(j.may)
	send(t, q, "d")
	h.until(t, "the message behind the purge", func() bool { return h.count() > 0 })
	if spans := h.spans(); len(spans) != 1 || spans[0].Count != 1 || string(h.runs[0].Data[len(h.runs[0].Data)-1:]) != "d" {
		t.Errorf("got %v", spans)
	}
	send(t, q, "e")
	h.until(t, "the one after it", func() bool { return h.count() > 1 })
	if info := describe(t, b, "q"); info.Epoch != opened.Epoch {
		t.Errorf("the queue was stopped: its epoch is %d, and was %d", info.Epoch, opened.Epoch)
	}
}

// G2: a peek leaves out what goes away meanwhile, and goes on.
func TestPurgeDuringPeek(t *testing.T) {
	j := newSlowReads()
	b := open(t, j, Options{CacheBytes: 1})
	q := b.Queue("q")
	send(t, q, "a", "b")
	type result struct {
		ms  []holdfast.PeekedMessage
		err error
	}
	done := make(chan result, 1)
	go func() {
		ms, err := q.Peek(t.Context(), holdfast.PeekOptions{Bodies: true})
		done <- result{ms, err}
	}()
	<-j.asked
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := j.Open(t.Context(), StreamName("q"))
	if err != nil {
		t.Fatal(err)
	}
	for alive := true; alive; {
		alive = false
		for _, err := range s.ReadBodies(t.Context(), []uint64{1, 2, 3, 4, 5, 6, 7, 8}) {
			if err != nil {
				t.Fatal(err)
			}
			alive = true
		}
	}
	close(j.may)
	if r := <-done; r.err != nil || len(r.ms) != 0 {
		t.Errorf("peek: %v, %v", r.ms, r.err)
	}
}

// Parts of hand-overs that are still there keep their leases.
func TestRunsAt(t *testing.T) {
	runs := []queue.Delivery{
		{LeaseSpan: queue.LeaseSpan{Lease: 10, Seq: 100, Count: 5}, Attempt: 1},
		{LeaseSpan: queue.LeaseSpan{Lease: 15, Seq: 50, Count: 2}, Attempt: 2},
		{LeaseSpan: queue.LeaseSpan{Lease: 17, Seq: 200, Count: 1}, Attempt: 3},
	}
	at := []located{
		{Record: 99, Span: queue.Span{Seq: 101, Count: 1}}, {Record: 99, Span: queue.Span{Seq: 103, Count: 2}},
		{Record: 200, Span: queue.Span{Seq: 200, Count: 1}},
	}
	want := []queue.Delivery{
		{LeaseSpan: queue.LeaseSpan{Lease: 11, Seq: 101, Count: 1}, Attempt: 1},
		{LeaseSpan: queue.LeaseSpan{Lease: 13, Seq: 103, Count: 2}, Attempt: 1},
		{LeaseSpan: queue.LeaseSpan{Lease: 17, Seq: 200, Count: 1}, Attempt: 3},
	}
	got := runsAt(runs, at)
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("part %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

// A record that was read is not read again for what a later hand-over takes out of its other frames, whichever of them that is (§11).
func TestRecordIsReadOnce(t *testing.T) {
	frame := func(n int) []byte {
		var b message.Builder
		b.Reset(nil)
		for range n {
			b.Add(&message.Message{Body: []byte("x")})
		}
		return b.Finish()
	}
	before := []*entry{newEntry(queue.Span{Seq: 10, Count: 4}, frame(4)), newEntry(queue.Span{Seq: 14, Count: 4}, frame(4)), newEntry(queue.Span{Seq: 20, Count: 2}, frame(2))}
	o := &owner{} // it has no stream to read from
	for _, s := range []queue.Span{{Seq: 10, Count: 1}, {Seq: 13, Count: 3}, {Seq: 10, Count: 8}, {Seq: 21, Count: 1}} {
		got, _, err := o.readRecords(t.Context(), []located{{Record: 10, Span: s}}, before)
		if err != nil || len(got) != len(before) {
			t.Errorf("%v: %d of %d frames are left, %v", s, len(got), len(before), err)
		}
		if pieces, left := takeRead(got, s, nil); len(pieces) != 1 || left.Count == s.Count {
			t.Errorf("%v: %v, %v left", s, pieces, left)
		}
	}
}
