package copier_test

import (
	"context"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// source is a stream whose owner stores a record and discards the body of the one before, again and again.
type source struct {
	t   *testing.T
	s   journal.Stream
	end journal.Header
}

func (s *source) goOn() {
	at := s.s.Acquired()
	rec := &journal.Record{
		Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: s.end.First + s.end.Count, Count: 1, Kind: journal.KindEvents, Time: 1},
		Meta:   []byte("meta"), Body: [][]byte{make([]byte, 100)},
	}
	if s.end.First == 0 {
		rec.First = at.End + 1
	}
	mustBe(s.t, rec.Seal(s.end.CRC))
	mustBe(s.t, s.s.Append(s.t.Context(), rec.First-1, rec))
	if s.end.First != 0 {
		mustBe(s.t, s.s.DiscardBodies(s.t.Context(), []journal.Range{{From: s.end.First, To: s.end.First}}))
	}
	s.end = rec.Header
}

// slow is a target that is slower than the source: while it takes a record, the source stores another one.
type slow struct {
	*memory.Journal
	source *source
}

func (s slow) Import(ctx context.Context, stream string, from journal.Info) (journal.Stream, error) {
	h, err := s.Journal.Import(ctx, stream, from)
	return slowStream{h, s.source}, err
}

type slowStream struct {
	journal.Stream
	source *source
}

func (s slowStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	s.source.goOn()
	return s.Stream.Append(ctx, after, rec)
}

// A copy comes to its end beside a source that is always ahead of the target, and says up to where it is complete.
func TestSourceFasterThanTarget(t *testing.T) {
	src, dst := memory.New(), memory.New()
	h, err := src.Acquire(t.Context(), "plain")
	mustBe(t, err)
	s := &source{t: t, s: h}
	const before = 600
	for range before {
		s.goOn()
	}
	results, err := copier.Copy(t.Context(), src, slow{dst, s}, copier.Options{Logger: quiet})
	if err != nil || len(results) != 1 {
		t.Fatalf("%+v: %v", results, err)
	}
	if r := results[0]; r.End < before || r.SourceEnd <= r.End {
		t.Errorf("complete up to %d, the source is at %d", r.End, r.SourceEnd)
	}
}
