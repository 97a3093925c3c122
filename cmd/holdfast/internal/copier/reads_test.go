package copier_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// lagging is a source whose answers are those of a replica that lags behind: some bodies are not there yet, others not gone yet.
type lagging struct {
	journal.Journal
	// hidden bodies are not found in the first of the reads that are asked for them.
	hidden map[uint64]bool
	// ghosts are bodies that are discarded, shown while showing is set.
	ghosts  map[uint64]*journal.Record
	showing atomic.Bool
}

func (l *lagging) Open(ctx context.Context, stream string) (journal.Reader, error) {
	r, err := l.Journal.Open(ctx, stream)
	return laggingReader{r, l}, err
}

type laggingReader struct {
	journal.Reader
	l *lagging
}

func (r laggingReader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for _, seq := range first {
			if r.l.hidden[seq] {
				delete(r.l.hidden, seq)
				continue
			}
			if g := r.l.ghosts[seq]; g != nil && r.l.showing.Load() {
				if !yield(g, nil) {
					return
				}
				continue
			}
			for rec, err := range r.Reader.ReadBodies(ctx, []uint64{seq}) {
				if !yield(rec, err) || err != nil {
					return
				}
			}
		}
	}
}

// lags makes a source of 20 messages, of which the first ones are acknowledged.
func lags(t *testing.T, acknowledged int) (*lagging, []*journal.Record) {
	t.Helper()
	src := memory.New()
	b := openBrokerWith(t, src, 1<<30)
	q := b.Queue("q")
	for i := range 20 {
		_, err := q.Send(t.Context(), holdfast.Message{Body: fmt.Appendf(nil, "message %d", i)})
		mustBe(t, err)
	}
	r, err := src.Open(t.Context(), "queue/q")
	mustBe(t, err)
	var first []uint64
	for rec, err := range r.ReadMeta(t.Context(), 1, 1<<40) {
		mustBe(t, err)
		if rec.BodyLen > 0 {
			first = append(first, rec.First)
		}
	}
	var bodies []*journal.Record
	for rec, err := range r.ReadBodies(t.Context(), first) {
		mustBe(t, err)
		bodies = append(bodies, rec)
	}
	if len(bodies) != 20 {
		t.Fatalf("%d bodies", len(bodies))
	}
	if acknowledged > 0 {
		in, err := q.NewReceiver(holdfast.ReceiverOptions{})
		mustBe(t, err)
		for n := 0; n < acknowledged; {
			ds, err := in.Receive(t.Context(), acknowledged-n)
			mustBe(t, err)
			mustBe(t, in.Ack(t.Context(), ds...))
			n += len(ds)
		}
		mustBe(t, in.Close(t.Context()))
		awaitDiscarded(t, r, first[:acknowledged])
	}
	shut(t, b)
	return &lagging{Journal: src, hidden: map[uint64]bool{}, ghosts: map[uint64]*journal.Record{}}, bodies
}

// awaitDiscarded waits until bodies are discarded.
func awaitDiscarded(t *testing.T, r journal.Reader, first []uint64) {
	t.Helper()
	deadline := time.After(clitest.Patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		there := 0
		for _, err := range r.ReadBodies(t.Context(), first) {
			mustBe(t, err)
			there++
		}
		if there == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d bodies are not discarded", there)
		}
	}
}

// G1: a body that a read of the source does not find, and the next one does, is copied, and is not taken for discarded when the copy is compared.
func TestBodyNotFoundAtOnce(t *testing.T) {
	src, bodies := lags(t, 0)
	dst := memory.New()
	hide := func() {
		for _, i := range []int{0, 7, 8, 19} {
			src.hidden[bodies[i].First] = true
		}
	}
	hide()
	o := copier.Options{Live: broker.LiveRecords, Logger: quiet, Progress: func(p copier.Progress) {
		if p.Verifying {
			hide()
		}
	}}
	for range 2 {
		if _, err := copier.Copy(t.Context(), src, dst, o); err != nil {
			t.Fatal(err)
		}
		wantIdentical(t, src.Journal, dst)
	}
	wantSame(t, src.Journal, dst)
}

// A body that the source has discarded, and shows again while the copy is compared, is not missing; one that a message needs is.
func TestBodyShownAgain(t *testing.T) {
	src, bodies := lags(t, 5)
	dst := memory.New()
	for _, rec := range bodies[:5] {
		src.ghosts[rec.First] = rec
	}
	o := copier.Options{Live: broker.LiveRecords, Logger: quiet, Progress: func(p copier.Progress) { src.showing.Store(p.Verifying) }}
	done, err := copier.Copy(t.Context(), src, dst, o)
	if err != nil || !src.showing.Load() || done[0].Bodies != 15 {
		t.Fatalf("%+v, %v", done, err)
	}
	src.showing.Store(false)
	wantSame(t, src.Journal, dst)

	// Another copy, of a source that never finds a body until it is compared.
	src, bodies = lags(t, 0)
	src.ghosts[bodies[3].First] = bodies[3]
	in := &forgetful{src, bodies[3].First}
	_, err = copier.Copy(t.Context(), in, memory.New(), copier.Options{Live: broker.LiveRecords, Logger: quiet, Progress: func(p copier.Progress) { src.showing.Store(p.Verifying) }})
	if !errors.Is(err, copier.ErrVerify) {
		t.Fatalf("a copy without the body of a message: %v", err)
	}
}

// forgetful is a source that does not find one body unless its ghost is shown.
type forgetful struct {
	*lagging
	seq uint64
}

func (f *forgetful) Open(ctx context.Context, stream string) (journal.Reader, error) {
	r, err := f.lagging.Open(ctx, stream)
	return forgetfulReader{r, f}, err
}

type forgetfulReader struct {
	journal.Reader
	f *forgetful
}

func (r forgetfulReader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	if !r.f.showing.Load() {
		first = slices.DeleteFunc(slices.Clone(first), func(seq uint64) bool { return seq == r.f.seq })
	}
	return r.Reader.ReadBodies(ctx, first)
}

// A body of a message that the source does not find, and the copy has, stays.
func TestNeededBodyStays(t *testing.T) {
	src, bodies := lags(t, 0)
	dst := memory.New()
	copyAll(t, src, dst)
	for _, rec := range bodies[:3] {
		in := &forgetful{src, rec.First}
		copyAll(t, in, dst)
	}
	wantIdentical(t, src.Journal, dst)
}
