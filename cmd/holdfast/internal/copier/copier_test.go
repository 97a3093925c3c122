package copier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// Issue: a copy from journal to journal, through every kind, has the same messages: ids, order, counts, headers, bodies; delayed, leased,
// retried and dead-lettered ones. Each copy is continued once, by a source that has discarded more meanwhile.
func TestChain(t *testing.T) {
	first := memory.New()
	journals := []journal.Journal{first, memory.New(), openPebble(t), openPostgres(t), openJetStream(t), openPebble(t)}
	for i := range 3 {
		b := openBroker(t, first)
		fill(t, b, i)
		shut(t, b)
	}
	for i, dst := range journals[1:] {
		src := journals[i]
		done := copyAll(t, src, dst)
		if r := done["queue/orders"]; r.Records == 0 || r.Bodies == 0 || r.Parts == 0 || r.Verified == 0 || r.End != r.SourceEnd {
			t.Fatalf("copy %d: %+v", i, r)
		}
		b := openBroker(t, src)
		fill(t, b, 10+i)
		fill(t, b, 20+i)
		shut(t, b)
		copyAll(t, src, dst)
		again := copyAll(t, src, dst)
		if r := again["queue/orders"]; r.Records != 0 || r.Parts != 0 {
			t.Errorf("copying what is copied has copied %+v", r)
		}
		wantIdentical(t, src, dst)
	}
	low := uint64(0)
	for info, err := range first.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		low = max(low, info.Low)
	}
	if low < 2 {
		t.Fatal("the source has discarded nothing: the test proves little")
	}
	wantSame(t, journals[len(journals)-2], journals[len(journals)-1])
}

// wantIdentical requires that all records that are kept are the same, with their bodies.
func wantIdentical(t *testing.T, src, dst journal.Journal) {
	t.Helper()
	for info, err := range src.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		a, b := photo(t, src, info), photo(t, dst, info)
		if a != b {
			t.Fatalf("stream %q: the source has\n%s\nthe copy\n%s", info.Name, clip(a), clip(b))
		}
	}
}

// photo is what is stored of a stream, without its epoch.
func photo(t *testing.T, j journal.Journal, of journal.Info) string {
	t.Helper()
	r, err := j.Open(t.Context(), of.Name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Epoch < of.Epoch {
		t.Fatalf("stream %q is of epoch %d, the source's is of %d", of.Name, info.Epoch, of.Epoch)
	}
	info.Epoch = 0
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", info)
	var first []uint64
	for rec, err := range r.ReadMeta(t.Context(), 1, info.End) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%+v\n", rec.Header)
		first = append(first, rec.First)
	}
	live, err := broker.LiveRecords(t.Context(), j, of.Name)
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range r.ReadBodies(t.Context(), append(live, first...)) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "body of %d: %d bytes, %08x\n", rec.First, rec.BodyLen, rec.BodyCRC)
	}
	parts, err := r.Parts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range parts {
		if name == "holdfast-copy" {
			continue // the note of a copy
		}
		data, err := r.ReadPart(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "part %s: %08x\n", name, journal.Checksum(data))
	}
	return b.String()
}

// quota is how many messages may be sent beside one copy: on a busy machine a source could be faster than any target.
type quota chan struct{}

func (q quota) refill() {
	for len(q) < cap(q) {
		q <- struct{}{}
	}
}

// take takes one, and waits for it. It returns false if ctx ends.
func (q quota) take(ctx context.Context) bool {
	select {
	case <-q:
		return true
	case <-ctx.Done():
		return false
	}
}

// Issue: interrupted and resumed 20 times while senders write to the source and receivers empty it: the copy is of the source.
func TestLiveSourceInterrupted(t *testing.T) {
	t.Run("memory to pebble", func(t *testing.T) { liveSourceInterrupted(t, memory.New(), openPebble(t)) })
	t.Run("memory to jetstream", func(t *testing.T) { liveSourceInterrupted(t, memory.New(), openJetStream(t)) })
	t.Run("postgres to pebble", func(t *testing.T) { liveSourceInterrupted(t, openPostgres(t), openPebble(t)) })
	t.Run("postgres to jetstream", func(t *testing.T) { liveSourceInterrupted(t, openPostgres(t), openJetStream(t)) })
}

func liveSourceInterrupted(t *testing.T, src, dst journal.Journal) {
	b := openBrokerWith(t, src, 400)
	fill(t, b, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	may := make(quota, 150)
	wg.Go(func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		q := b.Queue("orders") // one sender
		for i := 0; may.take(ctx); i++ {
			<-tick.C
			m := holdfast.Message{Body: fmt.Appendf(nil, "live %d %s", i, make([]byte, i%500))}
			if i%10 == 0 {
				m.Delay = time.Hour
			}
			if _, err := q.Send(ctx, m); err != nil && ctx.Err() == nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	})
	wg.Go(func() {
		err := b.Queue("orders").Consume(ctx, func(context.Context, *holdfast.Delivery) error { return nil }, holdfast.ConsumeOptions{Workers: 2})
		if err != nil && ctx.Err() == nil {
			t.Errorf("consume: %v", err)
		}
	})
	rng := rand.New(rand.NewPCG(1, 2))
	interrupted, complete := 0, 0
	for range 20 * soak {
		run, stop := context.WithCancel(t.Context())
		left := 1 + rng.IntN(200)
		may.refill()
		_, err := copier.Copy(run, src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet, Parallel: 1, Progress: func(copier.Progress) {
			if left--; left == 0 {
				stop()
			}
		}})
		stop()
		switch {
		case errors.Is(err, context.Canceled):
			interrupted++
		case err != nil:
			t.Fatal(err)
		default:
			complete++
		}
	}
	may.refill()
	done := copyAll(t, src, dst)
	t.Logf("%d interrupted, %d complete; at last up to seq %d of %d", interrupted, complete, done["queue/orders"].End, done["queue/orders"].SourceEnd)
	if interrupted == 0 {
		t.Error("no run was interrupted")
	}
	// What is copied of a live source is a queue of one moment: nothing that is in it misses its body.
	for name := range done {
		v, err := broker.Verify(t.Context(), dst, name, nil)
		if err != nil || len(v.Faults) > 0 {
			t.Fatalf("%s: %v %v", name, v.Faults, err)
		}
	}
	cancel()
	wg.Wait()
	shut(t, b)
	copyAll(t, src, dst)
	wantIdentical(t, src, dst)
	wantSame(t, src, dst)
}

// Dropped streams are copied as such, and go on behind their ends.
func TestDroppedStreams(t *testing.T) {
	src, dst := memory.New(), openPebble(t)
	b := openBroker(t, src)
	ctx := t.Context()
	for _, name := range []string{"gone", "later"} {
		if _, err := b.Queue(name).Send(ctx, holdfast.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	mustBe(t, b.Queue("gone").Delete(ctx))
	copyAll(t, src, dst)
	mustBe(t, b.Queue("later").Delete(ctx))
	shut(t, b)
	copyAll(t, src, dst)
	copyAll(t, src, dst)
	for info, err := range src.Streams(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := dst.Open(ctx, info.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Info(ctx)
		if err != nil || got.End != info.End || got.EndCRC != info.EndCRC || got.Dropped != info.Dropped || got.Epoch < info.Epoch {
			t.Errorf("%+v of the source is %+v in the copy (%v)", info, got, err)
		}
	}
}

// A stream that is dropped while it is copied is dropped in the copy, too; of one that is made anew as well that is told, since the target has
// its earlier life.
func TestDroppedMeanwhile(t *testing.T) {
	for _, anew := range []bool{false, true} {
		src, dst := memory.New(), memory.New()
		s := newSource(t, src, 10)
		for range 600 {
			s.goOn()
		}
		dropped := false
		o := copier.Options{Logger: quiet, Progress: func(p copier.Progress) {
			if dropped || p.Seq < 100 {
				return
			}
			dropped = true
			mustBe(t, s.s.Drop(t.Context()))
			if anew {
				again := newSource(t, src, 10)
				again.goOn()
			}
		}}
		results, err := copier.Copy(t.Context(), src, dst, o)
		if anew {
			if !errors.Is(err, copier.ErrTarget) || !strings.Contains(err.Error(), "copy into an empty store") {
				t.Errorf("made anew: %+v, %v", results, err)
			}
			continue
		}
		source, copied := infoOf(t, src, "plain"), infoOf(t, dst, "plain")
		if err != nil || !results[0].Dropped || !copied.Dropped || copied.End != source.End || copied.EndCRC != source.EndCRC {
			t.Errorf("%+v, %v: %+v of the source is %+v in the copy", results, err, source, copied)
		}
	}
}

// G11: a target that holds something else is told apart, and left as it is.
func TestTargetWrittenTo(t *testing.T) {
	src, dst := memory.New(), memory.New()
	b := openBroker(t, src)
	fill(t, b, 0)
	shut(t, b)
	copyAll(t, src, dst)
	other := openBroker(t, dst)
	if _, err := other.Queue("orders").Send(t.Context(), holdfast.Message{Body: []byte("by the copy's own broker")}); err != nil {
		t.Fatal(err)
	}
	shut(t, other)
	before := contentsOf(t, dst)
	unharmed := photoAll(t, dst)
	_, err := copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet})
	if !errors.Is(err, copier.ErrTarget) || !strings.Contains(err.Error(), "written to since it was copied") {
		t.Errorf("copying over what was written: %v", err)
	}
	// And when the source has gone on beyond that.
	b = openBroker(t, src)
	fill(t, b, 1)
	shut(t, b)
	_, err = copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet, Streams: []string{"queue/orders"}})
	if !errors.Is(err, copier.ErrTarget) {
		t.Errorf("copying over what was written: %v", err)
	}
	if after := photoAll(t, dst); after != unharmed {
		t.Errorf("the target was\n%s\nand is\n%s", clip(unharmed), clip(after))
	}
	if after := contentsOf(t, dst); after["orders"] != before["orders"] {
		t.Errorf("the target's queue was\n%s\nand is\n%s", clip(before["orders"]), clip(after["orders"]))
	}
}

// A copy goes on where one was ended that had just taken hold of the target, also where the source has discarded what follows; and it still refuses what
// somebody else has written to.
func TestEndedAsItBegan(t *testing.T) {
	for _, final := range []int64{60, 1 << 30} { // the source has discarded all that was copied first, or only what follows
		src, dst := memory.New(), memory.New()
		b := openBrokerWith(t, src, final)
		fill(t, b, 0)
		shut(t, b)
		copyAll(t, src, dst)
		there := infoOf(t, dst, "queue/orders")
		for range 2 { // they were ended before they wrote anything
			_, err := dst.Import(t.Context(), "queue/orders", journal.Info{UID: there.UID, Epoch: there.Epoch})
			mustBe(t, err)
		}
		discarded := func(round int) {
			t.Helper()
			end := infoOf(t, dst, "queue/orders").End
			for last := round + 10; infoOf(t, src, "queue/orders").Low <= end+1; round++ {
				if round == last {
					t.Fatalf("the source still has what follows seq %d", end)
				}
				b := openBroker(t, src)
				fill(t, b, round)
				shut(t, b)
			}
		}
		discarded(1)
		copyAll(t, src, dst)

		other := openBroker(t, dst)
		_, err := other.Queue("orders").Send(t.Context(), holdfast.Message{Body: []byte("by the copy's own broker")})
		mustBe(t, err)
		shut(t, other)
		discarded(11)
		_, err = copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet, Streams: []string{"queue/orders"}})
		if !errors.Is(err, copier.ErrTarget) || !strings.Contains(err.Error(), "another than a copy") {
			t.Errorf("copying over what was written: %v", err)
		}
	}
}

func infoOf(t *testing.T, j journal.Journal, stream string) journal.Info {
	t.Helper()
	r, err := j.Open(t.Context(), stream)
	mustBe(t, err)
	info, err := r.Info(t.Context())
	mustBe(t, err)
	return info
}

// photoAll is what is stored of the streams, epochs included.
func photoAll(t *testing.T, j journal.Journal) string {
	t.Helper()
	var b strings.Builder
	for info, err := range j.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name == "queue/orders" {
			fmt.Fprintf(&b, "%+v %s", info, photo(t, j, info))
		}
	}
	return b.String()
}

func contentsOf(t *testing.T, j journal.Journal) map[string]string {
	t.Helper()
	b := openBroker(t, j)
	defer shut(t, b)
	return contents(t, b)
}

// G11: streams that are not there, and drivers that cannot import.
func TestRefused(t *testing.T) {
	o := copier.Options{Live: broker.LiveRecords, Logger: quiet, Streams: []string{"none"}}
	src := memory.New()
	if _, err := copier.Copy(t.Context(), src, memory.New(), o); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("%v", err)
	}
	var plain struct{ journal.Journal }
	if _, err := copier.Copy(t.Context(), src, plain, o); !errors.Is(err, copier.ErrTarget) {
		t.Errorf("%v", err)
	}
}

// A copy that is damaged, or lacks a body, is found at the end.
func TestDifferencesAreFound(t *testing.T) {
	src := memory.New()
	b := openBroker(t, src)
	for i := range 20 {
		if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: fmt.Appendf(nil, "message %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, b)
	for what, harm := range map[string]func(t *testing.T, store *memory.Store, j journal.Journal, seq uint64){
		"flipped body": func(t *testing.T, store *memory.Store, _ journal.Journal, seq uint64) {
			mustBe(t, store.Damage("queue/q", seq, memory.DamageBody))
		},
		"flipped meta": func(t *testing.T, store *memory.Store, _ journal.Journal, seq uint64) {
			mustBe(t, store.Damage("queue/q", seq, memory.DamageMeta))
		},
		"lost body": func(t *testing.T, _ *memory.Store, j journal.Journal, seq uint64) {
			info, err := j.Open(t.Context(), "queue/q")
			mustBe(t, err)
			at, err := info.Info(t.Context())
			mustBe(t, err)
			h, err := j.(journal.Importer).Import(t.Context(), "queue/q", at)
			mustBe(t, err)
			mustBe(t, h.DiscardBodies(t.Context(), []journal.Range{{From: seq, To: seq}}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			store, err := memory.NewStore(memory.Options{})
			mustBe(t, err)
			dst := store.Open()
			copyAll(t, src, dst)
			seq := uint64(0)
			r, err := dst.Open(t.Context(), "queue/q")
			mustBe(t, err)
			for rec, err := range r.ReadMeta(t.Context(), 1, 1<<40) {
				mustBe(t, err)
				if rec.BodyLen > 0 && rec.Count == 1 {
					seq = rec.First
				}
			}
			harm(t, store, dst, seq)
			_, err = copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet})
			if err == nil || !errors.Is(err, copier.ErrVerify) && !errors.Is(err, journal.ErrCorrupt) {
				t.Fatalf("a copy with a %s at seq %d: %v", what, seq, err)
			}
		})
	}
}

// The source gets a new owner, and discards, while it is copied: the copy follows it, under the new epoch too.
func TestOwnerChangesMeanwhile(t *testing.T) {
	for name, dst := range map[string]journal.Journal{"memory": memory.New(), "pebble": openPebble(t)} {
		t.Run(name, func(t *testing.T) {
			src := memory.New()
			var end journal.Header
			write := func(n int, discard bool) {
				s, err := src.Acquire(t.Context(), "plain")
				mustBe(t, err)
				at := s.Acquired()
				end = journal.Header{UID: at.UID, Epoch: at.Epoch, First: at.End, Count: 1, CRC: at.EndCRC, Time: at.EndTime}
				for range n {
					r := &journal.Record{
						Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: end.Last() + 1, Count: 3, Kind: journal.KindEvents, Time: end.Time + 1},
						Meta:   []byte("meta"), Body: [][]byte{[]byte("body")},
					}
					mustBe(t, r.Seal(end.CRC))
					mustBe(t, s.Append(t.Context(), end.Last(), r))
					end = r.Header
				}
				if discard {
					low := end.First - 10
					mustBe(t, s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: low - 1}}))
					mustBe(t, s.DiscardMeta(t.Context(), low))
				}
				mustBe(t, s.WritePart(t.Context(), fmt.Sprintf("part %d", end.First), []byte("data")))
			}
			write(512, false) // two batches, and nothing more
			copyAll(t, src, memory.New())
			write(188, false)
			takeovers := 0
			o := copier.Options{Logger: quiet, Progress: func(p copier.Progress) {
				if p.Seq > uint64(300*(takeovers+1)) && takeovers < 3 && !p.Verifying {
					takeovers++
					write(100, takeovers > 1)
				}
			}}
			results, err := copier.Copy(t.Context(), src, dst, o)
			if err != nil || takeovers != 3 {
				t.Fatalf("%d takeovers, %v", takeovers, err)
			}
			if r := results[0]; r.End != end.Last() || r.SourceEnd != r.End {
				t.Errorf("complete up to seq %d of %d, %d were written", r.End, r.SourceEnd, end.Last())
			}
			wantIdentical(t, src, dst)
		})
	}
}
