package copier_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// G11: records that are too large for the target are told before anything is copied, of all streams, whether their metas are kept or not. What is
// no longer needed of them is no hindrance.
func TestTooLarge(t *testing.T) {
	src := memory.New()
	b := openBroker(t, src)
	q := b.Queue("large")
	mustBe(t, q.Create(t.Context(), queue.Config{}))
	mustBe(t, b.Queue("a").Create(t.Context(), queue.Config{})) // which would be copied first
	for _, size := range []int{200_000, 10, 300_000, 50_000} {
		_, err := q.Send(t.Context(), holdfast.Message{Body: make([]byte, size)})
		mustBe(t, err)
	}
	refused := func(limit, count int, src journal.Journal, parts bool) {
		t.Helper()
		o := memory.Options{MaxRecordBytes: limit}
		if parts {
			o = memory.Options{MaxPartBytes: limit}
		}
		small, err := memory.NewStore(o)
		mustBe(t, err)
		dst := small.Open()
		results, err := copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet})
		var le *copier.LimitError
		if !errors.As(err, &le) || !errors.Is(err, copier.ErrTarget) || len(results) != 0 {
			t.Fatalf("limit %d: %v, results %v", limit, err, results)
		}
		if count > 0 && le.Count != count || le.Stream != "queue/large" || le.Limit != limit || (le.Part != "") != parts || !parts && (le.Size < 300_000 || le.Size > 300_300) {
			t.Errorf("limit %d: %+v, want %d too large", limit, le, count)
		}
		for info, err := range dst.Streams(t.Context()) {
			t.Errorf("the target has %+v (%v)", info, err)
		}
	}
	refused(100_000, 2, src, false)
	refused(250_000, 1, src, false)
	shut(t, b) // with a snapshot, so that the metas are discarded
	refused(100_000, 2, src, false)
	refused(2, 0, src, true)
}

// G11: of a large record whose body the source has discarded, only what is left has to fit.
func TestTooLargeAndDiscarded(t *testing.T) {
	src := memory.New()
	s, err := src.Acquire(t.Context(), "plain")
	mustBe(t, err)
	at := s.Acquired()
	var end journal.Header
	for i, size := range []int{10, 200_000, 20} {
		rec := &journal.Record{
			Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: at.End + 1 + uint64(i), Count: 1, Kind: journal.KindEvents, Time: 1},
			Meta:   []byte("meta"), Body: [][]byte{make([]byte, size)},
		}
		mustBe(t, rec.Seal(end.CRC))
		mustBe(t, s.Append(t.Context(), rec.First-1, rec))
		end = rec.Header
	}
	small, err := memory.NewStore(memory.Options{MaxRecordBytes: 100_000})
	mustBe(t, err)
	dst := small.Open()
	var le *copier.LimitError
	if _, err := copier.Copy(t.Context(), src, dst, copier.Options{Logger: quiet}); !errors.As(err, &le) || le.Count != 1 || le.Seq != end.First-1 {
		t.Fatalf("%v", err)
	}
	mustBe(t, s.DiscardBodies(t.Context(), []journal.Range{{From: end.First - 1, To: end.First - 1}}))
	if r := copyAll(t, src, dst)["plain"]; r.Bodies != 2 {
		t.Errorf("%+v", r)
	}
	wantIdentical(t, src, dst)
}

// Issue: what a broker on an embedded journal stores at once, however much is sent at a time, fits into JetStream with the server's default payload.
func TestDefaultBatchFitsIntoNATS(t *testing.T) {
	src, dst := openPebble(t), openJetStream(t)
	b, err := broker.Open(t.Context(), src, broker.Options{Logger: quiet, Persistent: persistent.Options{SnapshotEvents: persistent.Never}})
	mustBe(t, err)
	mustBe(t, b.Queue("large").Create(t.Context(), queue.Config{}))
	batch := make([]holdfast.Message, 32)
	for i := range batch {
		batch[i].Body = []byte(strings.Repeat("x", 8000))
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if _, err := b.Queue("large").SendBatch(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	largest := 0
	r, err := src.Open(t.Context(), "queue/large")
	mustBe(t, err)
	for rec, err := range r.ReadMeta(t.Context(), 1, 1<<40) {
		mustBe(t, err)
		largest = max(largest, rec.Size())
	}
	shut(t, b)
	if limit := dst.Limits().MaxRecordBytes; persistent.DefaultMaxBatchBytes > limit || largest > limit || largest < limit/2 {
		t.Errorf("batches of up to %d bytes, the largest record has %d, JetStream takes %d", persistent.DefaultMaxBatchBytes, largest, limit)
	}
	copyAll(t, src, dst)
	wantSame(t, src, dst)
}
