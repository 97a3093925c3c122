package copier_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// source is a stream whose owner stores records, discards their bodies, and saves snapshots.
type source struct {
	t   *testing.T
	s   journal.Stream
	end journal.Header
	// keep is how many bodies live at a time.
	keep  int
	lives []uint64
	// saved counts snapshots.
	saved int
}

func newSource(t *testing.T, j journal.Journal, keep int) *source {
	t.Helper()
	h, err := j.Acquire(t.Context(), "plain")
	mustBe(t, err)
	at := h.Acquired()
	return &source{t: t, s: h, end: journal.Header{First: at.End, Count: 1, CRC: at.EndCRC, Time: at.EndTime}, keep: keep}
}

// goOn stores a record, and discards the body of the oldest one that lives if there are too many.
func (s *source) goOn() {
	at := s.s.Acquired()
	rec := &journal.Record{
		Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: s.end.First + s.end.Count, Count: 1, Kind: journal.KindEvents, Time: max(s.end.Time, 1)},
		Meta:   []byte("meta"), Body: [][]byte{make([]byte, 100)},
	}
	mustBe(s.t, rec.Seal(s.end.CRC))
	mustBe(s.t, s.s.Append(s.t.Context(), rec.First-1, rec))
	s.end = rec.Header
	if s.lives = append(s.lives, rec.First); len(s.lives) > s.keep {
		mustBe(s.t, s.s.DiscardBodies(s.t.Context(), []journal.Range{{From: s.lives[0], To: s.lives[0]}}))
		s.lives = s.lives[1:]
	}
}

// save saves a snapshot of many parts, all of them new, and discards what the older one of those that are left stands for.
func (s *source) save() {
	s.saved++
	chunks := make([][]byte, 10)
	for i := range chunks {
		chunks[i] = fmt.Appendf(nil, "chunk %d of snapshot %d %s", i, s.saved, strings.Repeat("x", 1000))
	}
	id := journal.SnapshotID{Seq: s.end.Last(), Epoch: s.end.Epoch, CRC: s.end.CRC, Time: s.end.Time}
	res, err := journal.SaveSnapshot(s.t.Context(), s.s, journal.Limits{MaxRecordBytes: 1 << 20, MaxPartBytes: 1 << 20}, id, slices.Values(chunks))
	mustBe(s.t, err)
	if res.DiscardLow > 0 {
		mustBe(s.t, s.s.DiscardMeta(s.t.Context(), res.DiscardLow))
	}
}

// slow is a target that is slower than the source: while it takes a record, or a part, the source does something.
type slow struct {
	*memory.Journal
	record, part func()
}

func (s slow) Import(ctx context.Context, stream string, from journal.Info) (journal.Stream, error) {
	h, err := s.Journal.Import(ctx, stream, from)
	return slowStream{h, s}, err
}

type slowStream struct {
	journal.Stream
	slow slow
}

func (s slowStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	s.slow.record()
	return s.Stream.Append(ctx, after, rec)
}

func (s slowStream) WritePart(ctx context.Context, name string, data []byte) error {
	if strings.HasPrefix(name, "c/") {
		s.slow.part()
	}
	return s.Stream.WritePart(ctx, name, data)
}

// A copy comes to its end beside a source that is always ahead of the target, and says up to where it is complete.
func TestSourceFasterThanTarget(t *testing.T) {
	src, dst := memory.New(), memory.New()
	s := newSource(t, src, 1)
	const before = 600
	for range before {
		s.goOn()
	}
	results, err := copier.Copy(t.Context(), src, slow{dst, s.goOn, nil}, copier.Options{Logger: quiet})
	if err != nil || len(results) != 1 {
		t.Fatalf("%+v: %v", results, err)
	}
	if r := results[0]; r.End < before || r.SourceEnd <= r.End {
		t.Errorf("complete up to %d, the source is at %d", r.End, r.SourceEnd)
	}
}

// A copy comes to its end beside a source that replaces its snapshots, and discards what they stand for, several times while the target takes one.
func TestSnapshotsFasterThanTarget(t *testing.T) {
	src, dst := memory.New(), memory.New()
	s := newSource(t, src, 1)
	round := func() {
		for range 10 {
			s.goOn()
		}
		s.save()
	}
	for range 4 {
		round()
	}
	results, err := copier.Copy(t.Context(), src, slow{dst, s.goOn, round}, copier.Options{Logger: quiet})
	if err != nil || len(results) != 1 {
		t.Fatalf("%+v: %v", results, err)
	}
	r := results[0]
	if r.End < 40 || r.SourceEnd <= r.End || s.saved < 20 {
		t.Errorf("complete up to %d, the source is at %d, with %d snapshots", r.End, r.SourceEnd, s.saved)
	}
	// What it has is a snapshot, and all records behind it.
	in, err := dst.Open(t.Context(), "plain")
	mustBe(t, err)
	loaded, err := journal.LoadSnapshot(t.Context(), in, readAll)
	if err != nil || loaded.ID.Seq == 0 || loaded.ID.Seq > r.End {
		t.Fatalf("the copy has %v, %v", loaded.ID, err)
	}
	next := loaded.ID.Seq + 1
	for rec, err := range in.ReadMeta(t.Context(), next, r.End) {
		if err != nil || rec.First != next {
			t.Fatalf("want a record at seq %d, got one at %d, %v", next, rec.First, err)
		}
		next = rec.Last() + 1
	}
	if next != r.End+1 {
		t.Errorf("the copy's records end before seq %d", next)
	}
}

func readAll(_ journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	for _, err := range chunks {
		if err != nil {
			return err
		}
	}
	return nil
}

// What lives in the source for a while only has to fit into what is read ahead: with less than that the copy says so, and what it has done counts when more
// is allowed.
func TestAhead(t *testing.T) {
	src, dst := memory.New(), memory.New()
	s := newSource(t, src, 15) // 1.5 kB live, all of which others have replaced by the time that the target has taken them
	for range 30 {
		s.goOn()
	}
	o := copier.Options{Logger: quiet, Ahead: 500}
	_, err := copier.Copy(t.Context(), src, slow{dst, s.goOn, nil}, o)
	if err == nil || !strings.Contains(err.Error(), "--ahead") {
		t.Fatalf("with little read ahead: %v", err)
	}
	before := infoOf(t, dst, "plain").End
	o.Ahead = 1 << 20
	results, err := copier.Copy(t.Context(), src, slow{dst, s.goOn, nil}, o)
	if err != nil || len(results) != 1 || results[0].End <= before || results[0].SourceEnd <= results[0].End {
		t.Errorf("%+v: %v", results, err)
	}
}
