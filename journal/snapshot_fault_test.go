package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// faulty is a history on a journal with faults.
func faulty(t *testing.T) (*history, *fault.Journal, *memory.Store) {
	store, err := memory.NewStore(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := fault.New(store.Open(), fault.Options{Crash: store.Crash})
	h := newHistory(t)
	s, err := f.Acquire(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	h.j, h.s, h.at = nil, s, s.Acquired()
	return h, f, store
}

// state is what a snapshot holds in these tests: a chunk that never changes, one that comes and
// goes, one of the snapshot's own.
func state(i int) [][]byte {
	return [][]byte{big("always"), big(fmt.Sprint("now and then ", i%3)), big(fmt.Sprint("only ", i))}
}

// §4, G2: whatever call of a save fails, before or after its effect or by a power cut, there is a
// snapshot to load, nothing is allowed to be discarded too early, and the next save puts all in order.
func TestSnapshotSaveInterrupted(t *testing.T) {
	for name, action := range map[string]fault.Action{
		"failed":    fault.Fail(),
		"answer":    fault.LoseAnswer(),
		"full":      fault.Full(),
		"cut":       fault.CrashBefore(),
		"cut after": fault.CrashAfter(),
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; interruptSave(t, n, action); n++ {
				if n > 100 {
					t.Fatal("a save makes more than 100 calls")
				}
			}
		})
	}
}

// interruptSave lets the n-th call of the third save meet with action, and tells whether there was an
// n-th call.
func interruptSave(t *testing.T, n int, action fault.Action) bool {
	h, f, store := faulty(t)
	for i := range 2 {
		h.append(1)
		h.discard(h.save(state(i)...).DiscardLow)
	}
	before := h.at.End
	h.append(1)
	calls := 0
	f.SetPlan(func(fault.Call) fault.Action {
		if calls++; calls == n {
			return action
		}
		return fault.Action{}
	})
	res, err := journal.SaveSnapshot(t.Context(), h.s, h.lim, h.id(), slices.Values(state(2)))
	f.SetPlan(nil)
	hit := calls >= n
	if (err != nil) != hit || err != nil && res != (journal.SavedSnapshot{}) {
		t.Fatalf("call %d: %+v, %v", n, res, err)
	}

	// A successor, which also finds the store after a power cut.
	h.j = store.Open()
	h.acquire()
	loaded, chunks, err := load(t.Context(), h.s)
	if err != nil {
		t.Fatalf("load after call %d: %v", n, err)
	}
	want := state(1)
	if loaded.ID.Seq == h.at.End {
		want = state(2)
	} else if loaded.ID.Seq != before {
		t.Fatalf("loaded %v after call %d, want the one before or the new one", loaded.ID, n)
	}
	if !slices.EqualFunc(chunks, want, slices.Equal) {
		t.Fatalf("after call %d, %v has not the chunks that were saved", n, loaded.ID)
	}
	h.append(1)
	h.discard(h.save(state(3)...).DiscardLow)
	h.wantLoaded(h.at.End, 0, state(3)...)
	if n := len(h.manifests()); n != 2 {
		t.Fatalf("%d manifests after the next save, want 2", n)
	}
	if n := len(h.parts("c/")); n > 6 {
		t.Fatalf("%d pieces after the next save, want at most 6", n)
	}
	// The older of the two is as good.
	h.delete(h.manifests()[1])
	if res, _, err := load(t.Context(), h.s); err != nil || res.ID.Seq == 0 {
		t.Fatalf("after call %d, the older snapshot does not load: %v, %v", n, res, err)
	}
	return hit
}

// §4: writes and deletes of parts that were given up and take effect late harm no later snapshot,
// though it has the same chunks.
func TestSnapshotLateEffects(t *testing.T) {
	for _, op := range []fault.Op{fault.WritePart, fault.DeleteParts} {
		for n := 1; n <= 3; n++ {
			synctest.Test(t, func(t *testing.T) {
				h, f, _ := faulty(t)
				for i := range 2 {
					h.append(1)
					h.save(state(i)...)
				}
				release := make(chan struct{})
				calls := 0
				f.SetPlan(func(c fault.Call) fault.Action {
					if c.Op == op {
						if calls++; calls == n {
							return fault.HoldLate(release)
						}
					}
					return fault.Action{}
				})
				h.append(1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := journal.SaveSnapshot(ctx, h.s, h.lim, h.id(), slices.Values(state(2)))
				f.SetPlan(nil)
				if calls >= n && !errors.Is(err, journal.ErrUnknown) {
					t.Fatalf("save with %s %d held up: %v", op, n, err)
				}
				// The same chunks again, and those of the first snapshot, and then the late call.
				for _, i := range []int{2, 4, 3} {
					h.append(1)
					h.discard(h.save(state(i)...).DiscardLow)
				}
				close(release)
				synctest.Wait()
				h.wantLoaded(h.at.End, 0, state(3)...)
				h.append(1)
				h.discard(h.save(state(5)...).DiscardLow)
				h.wantLoaded(h.at.End, 0, state(5)...)
				h.delete(h.manifests()[len(h.manifests())-1])
				h.wantLoaded(h.at.End-2, 0, state(3)...)
			})
		}
	}
}

// G2: a store that does not answer is no reason to take an older snapshot, or none.
func TestSnapshotLoadStoreAway(t *testing.T) {
	h, f, _ := faulty(t)
	for i := range 2 {
		h.append(1)
		h.discard(h.save(state(i)...).DiscardLow)
	}
	away := errors.New("connection refused")
	for n := 1; ; n++ {
		calls := 0
		f.SetPlan(func(fault.Call) fault.Action {
			if calls++; calls == n {
				return fault.FailWith(away)
			}
			return fault.Action{}
		})
		res, _, err := load(t.Context(), h.s)
		if calls < n {
			if err != nil || res.ID.Seq != h.at.End {
				t.Fatalf("%v, %v", res, err)
			}
			return
		}
		if !errors.Is(err, away) || res.ID != (journal.SnapshotID{}) {
			t.Fatalf("call %d failed: %v, %v; want its error", n, res, err)
		}
	}
}

// §8: a standby that loads while the owner replaces the snapshots gets one of them.
func TestSnapshotLoadBesideSaves(t *testing.T) {
	h, f, _ := faulty(t)
	h.append(1)
	h.save(state(0)...)
	h.append(1)
	h.discard(h.save(state(1)...).DiscardLow)
	i := 2
	replaced := 0
	// Each time that the standby is about to read a part, up to four times, the owner saves twice.
	f.SetPlan(func(c fault.Call) fault.Action {
		if c.Op != fault.ReadPart || replaced == 4 {
			return fault.Action{}
		}
		return fault.Action{Before: fault.Fault{Do: func(context.Context) error {
			replaced++
			f.SetPlan(nil)
			for range 2 {
				h.append(1)
				h.discard(h.save(state(i)...).DiscardLow)
				i++
			}
			return nil
		}}}
	})
	r, err := f.Open(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	var res journal.LoadedSnapshot
	res, err = journal.LoadSnapshot(t.Context(), r, func(_ journal.SnapshotID, in iter.Seq2[[]byte, error]) error {
		for _, err := range in {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || res.ID.Seq == 0 || replaced == 0 {
		t.Fatalf("%v, %v after %d replacements, want a snapshot", res, err, replaced)
	}
}

// lyingStream stores other parts than it is given.
type lyingStream struct {
	journal.Stream
	lie func(name string, data []byte) []byte
}

func (s *lyingStream) WritePart(ctx context.Context, name string, data []byte) error {
	return s.Stream.WritePart(ctx, name, s.lie(name, data))
}

// §4: what is written is read back before anything may be discarded for it.
func TestSnapshotReadBack(t *testing.T) {
	for _, prefix := range []string{"c/", "m/"} {
		h := newHistory(t)
		for i := range 2 {
			h.append(1)
			h.save(state(i)...)
		}
		honest := h.s
		h.s = &lyingStream{honest, func(name string, data []byte) []byte {
			if strings.HasPrefix(name, prefix) {
				data = slices.Clone(data)
				data[len(data)-1] ^= 1
			}
			return data
		}}
		h.append(1)
		res, err := journal.SaveSnapshot(t.Context(), h.s, h.lim, h.id(), slices.Values(state(2)))
		if !errors.Is(err, journal.ErrCorrupt) || res.DiscardLow != 0 {
			t.Fatalf("with a store that garbles %s: %+v, %v; want ErrCorrupt", prefix, res, err)
		}
		h.s = honest
		if res, _, err := load(t.Context(), h.s); err != nil || res.ID.Seq != 4 {
			t.Fatalf("%v, %v; want the snapshot at 4", res, err)
		}
	}
}

// §4: of the snapshots before, one that has lost a chunk is not kept as the older one, and
// nothing is discarded on its account.
func TestSnapshotOlderIncomplete(t *testing.T) {
	h := newHistory(t)
	h.append(1)
	h.save(big("a"))
	h.append(1)
	before := h.parts("c/")
	h.save(big("b"))
	own := slices.DeleteFunc(h.parts("c/"), func(n string) bool { return slices.Contains(before, n) })
	h.delete(own...)
	h.append(1)
	if res := h.save(big("c")); res.DiscardLow != 3 {
		t.Fatalf("%+v, want the intact snapshot at 2 as the older one", res)
	}
	h.wantLoaded(6, 0, big("c"))
	h.delete(h.manifests()[1])
	h.wantLoaded(2, 0, big("a"))
}

// G2: as long as a manifest cannot be read, which may pass, no chunk is deleted before there is
// a new snapshot.
func TestSnapshotUnreadableManifest(t *testing.T) {
	h, f, _ := faulty(t)
	for i := range 2 {
		h.append(1)
		h.save(state(i)...)
	}
	name := h.manifests()[1]
	good, err := h.s.ReadPart(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	h.damage(name)
	h.append(1)
	f.Next(fault.WritePart, fault.Full())
	if _, err := journal.SaveSnapshot(t.Context(), h.s, h.lim, h.id(), slices.Values(state(2))); !errors.Is(err, journal.ErrFull) {
		t.Fatalf("%v, want ErrFull", err)
	}
	if err := h.s.WritePart(t.Context(), name, good); err != nil {
		t.Fatal(err)
	}
	h.wantLoaded(4, 0, state(1)...)
}
