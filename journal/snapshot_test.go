package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// history is a stream with records of two events, whose snapshots are texts.
type history struct {
	t   *testing.T
	j   *memory.Journal
	s   journal.Stream
	at  journal.Info
	crc map[uint64]uint32
	lim journal.Limits
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, j: memory.New(), crc: map[uint64]uint32{}}
	h.lim = h.j.Limits()
	h.acquire()
	return h
}

func (h *history) acquire() {
	h.t.Helper()
	var err error
	if h.s, err = h.j.Acquire(h.t.Context(), "q"); err != nil {
		h.t.Fatal(err)
	}
	h.at = h.s.Acquired()
}

func (h *history) append(records int) {
	h.t.Helper()
	for range records {
		r := &journal.Record{
			Header: journal.Header{UID: h.at.UID, Epoch: h.at.Epoch, First: h.at.End + 1, Count: 2, Kind: journal.KindEvents, Time: 1000 + int64(h.at.End)},
			Meta:   []byte("m"),
		}
		if err := r.Seal(h.at.EndCRC); err != nil {
			h.t.Fatal(err)
		}
		if err := h.s.Append(h.t.Context(), h.at.End, r); err != nil {
			h.t.Fatal(err)
		}
		h.at.End, h.at.EndCRC, h.at.EndTime = r.Last(), r.CRC, r.Time
		h.crc[r.Last()] = r.CRC
	}
}

func (h *history) id() journal.SnapshotID {
	return journal.SnapshotID{Seq: h.at.End, Epoch: h.at.Epoch, CRC: h.at.EndCRC, Time: h.at.EndTime}
}

// big makes a chunk that is not kept inline, a different one for each name.
func big(name string) []byte { return bytes.Repeat([]byte(name+" "), 1000) }

func (h *history) save(chunks ...[]byte) journal.SavedSnapshot {
	h.t.Helper()
	res, err := journal.SaveSnapshot(h.t.Context(), h.s, h.lim, h.id(), slices.Values(chunks))
	if err != nil {
		h.t.Fatal(err)
	}
	return res
}

// load restores the chunks as they were saved.
func load(ctx context.Context, r journal.Reader) (res journal.LoadedSnapshot, chunks [][]byte, err error) {
	res, err = journal.LoadSnapshot(ctx, r, func(_ journal.SnapshotID, in iter.Seq2[[]byte, error]) error {
		chunks = nil
		for c, err := range in {
			if err != nil {
				return err
			}
			chunks = append(chunks, c)
		}
		return nil
	})
	return res, chunks, err
}

// wantLoaded requires that the snapshot at seq loads with these chunks.
func (h *history) wantLoaded(seq uint64, skipped int, want ...[]byte) {
	h.t.Helper()
	res, got, err := load(h.t.Context(), h.s)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.ID.Seq != seq || len(res.Skipped) != skipped {
		h.t.Fatalf("loaded %v having skipped %v, want seq %d and %d skipped", res.ID, res.Skipped, seq, skipped)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		h.t.Fatalf("loaded %d chunks that are not the %d saved", len(got), len(want))
	}
}

func (h *history) parts(prefix string) []string {
	h.t.Helper()
	names, err := h.s.Parts(h.t.Context(), prefix)
	if err != nil {
		h.t.Fatal(err)
	}
	return names
}

// manifests returns the manifests' names, oldest first.
func (h *history) manifests() []string {
	return slices.DeleteFunc(h.parts("m/"), func(n string) bool { return n == "m/discard" })
}

// damage changes one byte of a part.
func (h *history) damage(name string) {
	h.t.Helper()
	data, err := h.s.ReadPart(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := h.s.WritePart(h.t.Context(), name, data); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) delete(names ...string) {
	h.t.Helper()
	if err := h.s.DeleteParts(h.t.Context(), names); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) discard(low uint64) {
	h.t.Helper()
	if err := h.s.DiscardMeta(h.t.Context(), low); err != nil {
		h.t.Fatal(err)
	}
}

// §4: two snapshots are kept, meta may go behind the older one, chunks keep their boundaries.
func TestSnapshotsTwoKept(t *testing.T) {
	h := newHistory(t)
	h.wantLoaded(0, 0)
	for i := range 5 {
		h.append(3)
		state := [][]byte{big("same"), big(fmt.Sprint("state ", i)), {}, []byte("small")}
		res := h.save(state...)
		want := uint64(0)
		if i > 0 {
			want = uint64(i)*6 + 1
		}
		if res.DiscardLow != want || res.Chunks != 4 {
			t.Fatalf("save %d: %+v, want DiscardLow %d", i, res, want)
		}
		h.discard(res.DiscardLow)
		if n := len(h.manifests()); n != min(i+1, 2) {
			t.Fatalf("save %d: %d manifests", i, n)
		}
		if n := len(h.parts("c/")); n != min(i+1, 2)+1 {
			t.Fatalf("save %d: %d pieces, want the unchanged one and one for each snapshot", i, n)
		}
		h.wantLoaded(h.at.End, 0, state...)
	}
}

// §4: only changed chunks are written again.
func TestSnapshotWritesOnlyWhatChanged(t *testing.T) {
	h := newHistory(t)
	h.append(1)
	h.save(big("a"), big("b"))
	h.append(1)
	if res := h.save(big("a"), big("c"), big("c")); res.Written != uint64(len(big("c"))) {
		t.Fatalf("%+v, want only chunk c written, once", res)
	}
	h.append(1)
	if res := h.save(big("a"), big("c")); res.Written != 0 {
		t.Fatalf("%+v, want nothing written", res)
	}
}

// §4: MaxPartBytes is obeyed; chunks come back whole.
func TestSnapshotSplitsLargeChunks(t *testing.T) {
	store, err := memory.NewStore(memory.Options{MaxPartBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(t)
	h.j = store.Open()
	h.lim = h.j.Limits()
	h.acquire()
	h.append(1)
	h.save(big("large"), []byte("x"), big("larger still"))
	h.wantLoaded(2, 0, big("large"), []byte("x"), big("larger still"))

	many := make([][]byte, 200)
	for i := range many {
		many[i] = big(fmt.Sprint(i))[:600]
	}
	_, err = journal.SaveSnapshot(t.Context(), h.s, h.lim, h.id(), slices.Values(many))
	if !errors.Is(err, journal.ErrTooLarge) {
		t.Fatalf("a manifest that is larger than a part: %v, want ErrTooLarge", err)
	}
	h.wantLoaded(2, 0, big("large"), []byte("x"), big("larger still"))
	h.append(1)
	h.save(big("next"))
	if n := len(h.parts("c/")); n > 30 {
		t.Fatalf("%d pieces: the failed snapshot's were not deleted", n)
	}
}

// §4: one that does not load falls back to the one before; if neither loads, and what they
// stand for is discarded, the stream does not open.
func TestSnapshotFallsBack(t *testing.T) {
	broken := map[string]func(h *history, newest string, own string){
		"manifest damaged": func(h *history, m, _ string) { h.damage(m) },
		"manifest missing": func(h *history, m, _ string) { h.delete(m) },
		"chunk damaged":    func(h *history, _, c string) { h.damage(c) },
		"chunk missing":    func(h *history, _, c string) { h.delete(c) },
		"manifest of another name": func(h *history, m, _ string) {
			other, _ := h.s.ReadPart(h.t.Context(), h.manifests()[0])
			if m == h.manifests()[0] {
				other = []byte("HFS")
			}
			if err := h.s.WritePart(h.t.Context(), m, other); err != nil {
				h.t.Fatal(err)
			}
		},
	}
	for name, breakIt := range broken {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.append(2)
			h.save(big("old"))
			oldPieces := h.parts("c/")
			h.append(2)
			res := h.save(big("new"))
			newPieces := slices.DeleteFunc(h.parts("c/"), func(n string) bool { return slices.Contains(oldPieces, n) })
			h.append(1)

			manifests := h.manifests()
			breakIt(h, manifests[1], newPieces[0])
			skipped := 1
			if name == "manifest missing" {
				skipped = 0
			}
			h.wantLoaded(4, skipped, big("old"))

			breakIt(h, manifests[0], oldPieces[0])
			got, _, err := load(t.Context(), h.s)
			if err != nil || got.ID.Seq != 0 {
				t.Fatalf("with all events kept: %v, %v, want a start from nothing", got, err)
			}

			h.discard(res.DiscardLow)
			_, _, err = load(t.Context(), h.s)
			var se *journal.SnapshotError
			if !errors.As(err, &se) || !errors.Is(err, journal.ErrCorrupt) || se.Low != 5 || se.Stream != "q" {
				t.Fatalf("with events discarded: %v, want a SnapshotError for seq 5", err)
			}
		})
	}
}

// §4: a snapshot whose next events are discarded is none, though it is intact.
func TestSnapshotBehindADiscard(t *testing.T) {
	h := newHistory(t)
	h.append(2)
	h.save(big("old"))
	h.append(2)
	h.save(big("new"))
	h.append(2)
	h.discard(h.at.End - 1) // more than SaveSnapshot allowed
	var se *journal.SnapshotError
	if _, _, err := load(t.Context(), h.s); !errors.As(err, &se) || len(se.Tried) != 2 {
		t.Fatalf("%v, want a SnapshotError", err)
	}
}

// §4: a snapshot beyond the end of the stream's history is ignored, also when the stream has
// grown past it, and is not kept as the older one.
func TestSnapshotOfLostHistory(t *testing.T) {
	store, err := memory.NewStore(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(t)
	h.j = store.Open()
	h.acquire()
	h.append(2)
	h.save(big("good"))
	bad := &journal.Record{
		Header:   journal.Header{UID: h.at.UID, Epoch: h.at.Epoch, First: 5, Count: 2, Kind: journal.KindEvents, Time: 2000},
		Buffered: true,
	}
	if err := errors.Join(bad.Seal(h.at.EndCRC), h.s.Append(t.Context(), 4, bad)); err != nil {
		t.Fatal(err)
	}
	h.at.End, h.at.EndCRC, h.at.EndTime = 6, bad.CRC, 2000
	h.save(big("lost"))
	store.Crash()

	h.j = store.Open()
	h.acquire()
	h.wantLoaded(4, 1, big("good"))
	h.append(3)
	h.wantLoaded(4, 1, big("good"))
	if res := h.save(big("newer")); res.DiscardLow != 5 {
		t.Fatalf("%+v, want the good snapshot at 4 kept as the older one", res)
	}
	h.wantLoaded(10, 0, big("newer"))
	if n := len(h.manifests()); n != 2 {
		t.Fatalf("%d manifests, want 2", n)
	}
}

// §4: a stream that was dropped and made anew starts from nothing, though its lowest seq is
// not 1; its snapshots work from there.
func TestSnapshotAfterDrop(t *testing.T) {
	h := newHistory(t)
	h.append(2)
	h.save(big("old life"))
	if err := h.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.acquire()
	h.wantLoaded(0, 0)
	h.append(1)
	h.wantLoaded(0, 0)
	h.save(big("new life"))
	h.wantLoaded(6, 0, big("new life"))
}

// §4: a reused chunk that was damaged in the store is found by reading back, and written anew.
func TestSnapshotRepairsDamagedChunk(t *testing.T) {
	h := newHistory(t)
	h.append(1)
	h.save(big("a"))
	h.damage(h.parts("c/")[0])
	h.append(1)
	if res := h.save(big("a")); res.Written == 0 {
		t.Fatalf("%+v: the damaged chunk was used again", res)
	}
	h.wantLoaded(4, 0, big("a"))
}

// §4: the same snapshot may be saved again, after a failure or an idle time.
func TestSnapshotSavedTwice(t *testing.T) {
	h := newHistory(t)
	h.append(1)
	h.save(big("a"))
	h.append(1)
	first := h.save(big("b"))
	if again := h.save(big("b")); again.DiscardLow != first.DiscardLow {
		t.Fatalf("%+v, then %+v", first, again)
	}
	h.wantLoaded(4, 0, big("b"))
	if n := len(h.manifests()); n != 2 {
		t.Fatalf("%d manifests, want 2", n)
	}
}

// §4, §3: what restore says decides: a newer format ends the loading, any other refusal falls back.
func TestSnapshotRestoreErrors(t *testing.T) {
	h := newHistory(t)
	h.append(1)
	h.save([]byte("old"))
	h.append(1)
	h.save([]byte("new"))
	for _, test := range []struct {
		refusal, want error
		calls         int
	}{
		{fmt.Errorf("state of version 9: %w", journal.ErrNewerFormat), journal.ErrNewerFormat, 1},
		{errors.New("nonsense"), nil, 2},
	} {
		calls := 0
		res, err := journal.LoadSnapshot(t.Context(), h.s, func(id journal.SnapshotID, in iter.Seq2[[]byte, error]) error {
			calls++
			if id.Seq == 4 {
				return test.refusal
			}
			return nil
		})
		if !errors.Is(err, test.want) || calls != test.calls {
			t.Fatalf("restore says %v: %d calls, %v, %v", test.refusal, calls, res, err)
		}
		if err == nil && res.ID.Seq != 2 {
			t.Fatalf("loaded %v, want the older", res.ID)
		}
	}
	// A manifest of a newer version is refused, not passed over.
	newest := h.manifests()[1]
	data, err := h.s.ReadPart(t.Context(), newest)
	if err != nil {
		t.Fatal(err)
	}
	data[3] = 99
	if err := h.s.WritePart(t.Context(), newest, data); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(t.Context(), h.s); !errors.Is(err, journal.ErrNewerFormat) {
		t.Fatalf("%v, want ErrNewerFormat", err)
	}
	h.append(1)
	if _, err := journal.SaveSnapshot(t.Context(), h.s, h.lim, h.id(), slices.Values([][]byte{{1}})); !errors.Is(err, journal.ErrNewerFormat) {
		t.Fatalf("saving beside a newer snapshot: %v, want ErrNewerFormat", err)
	}
}

// G11 and §4: a snapshot covers stored events only, under the owner's epoch.
func TestSnapshotRefused(t *testing.T) {
	h := newHistory(t)
	h.append(2)
	old := h.s
	good := h.id()
	for name, change := range map[string]func(id *journal.SnapshotID){
		"seq 0":             func(id *journal.SnapshotID) { id.Seq = 0 },
		"beyond the end":    func(id *journal.SnapshotID) { id.Seq = 5 },
		"inside a record":   func(id *journal.SnapshotID) { id.Seq = 3 },
		"another record":    func(id *journal.SnapshotID) { id.CRC++ },
		"an earlier record": func(id *journal.SnapshotID) { id.Seq = 2 },
		"epoch":             func(id *journal.SnapshotID) { id.Epoch++ },
	} {
		id := good
		change(&id)
		if _, err := journal.SaveSnapshot(t.Context(), h.s, h.lim, id, slices.Values([][]byte{{1}})); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	h.acquire()
	if _, err := journal.SaveSnapshot(t.Context(), old, h.lim, good, slices.Values([][]byte{{1}})); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("by a fenced owner: %v, want ErrFenced", err)
	}
	if names := h.parts(""); len(names) != 0 {
		t.Errorf("refused snapshots left %s", strings.Join(names, ", "))
	}
}
