package persistent_test

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// history is what the owners of one stream did and told, against which a recovery is checked.
type history struct {
	mu     sync.Mutex        // a fenced owner may still be at work while the next one recovers
	owner  *traced           // the newest one
	states map[uint64]string // by next: the state that the newest owner had there
	others map[uint64]bool   // first seqs of the records without events
	stored uint64            // up to here was told as stored
	things []*fate           // by id
}

// fate is what became of one put thing.
type fate struct{ put, take string } // outcomes; take is empty if nobody took it

// traced is a shelf whose states are kept: live, they are noted; on recovery, compared with what the owner
// before noted at the same seq.
type traced struct {
	*shelf
	h    *history
	live bool
}

func newHistory() *history { return &history{states: map[uint64]string{}, others: map[uint64]bool{}} }

func (h *history) shelf() *traced { return &traced{shelf: newShelf(), h: h} }

func (tr *traced) check() {
	tr.h.mu.Lock()
	defer tr.h.mu.Unlock()
	if tr.h.owner != tr {
		return // a fenced one that still decides
	}
	state := tr.state()
	if tr.live {
		tr.h.states[tr.next] = state
	} else if old, ok := tr.h.states[tr.next]; ok && old != state {
		tr.fail("recovered at next %d\n%s\nthe owner before had\n%s", tr.next, state, old)
	}
}

func (tr *traced) Apply(seq uint64, at int64, e event) {
	tr.shelf.Apply(seq, at, e)
	tr.check()
}

func (tr *traced) Stored(a *persistent.Context[event], h *journal.Header) {
	if h.Kind != journal.KindEvents {
		tr.h.other(h.First)
	}
	tr.shelf.Stored(a, h)
	tr.check()
}

func (tr *traced) Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	tr.h.mu.Lock()
	tr.h.owner = tr
	tr.h.mu.Unlock()
	err := tr.shelf.Restore(id, chunks)
	if err == nil {
		tr.check()
	}
	return err
}

// other notes a record without events. Of one that no owner has seen before, its own or one that an unanswered try
// left behind, follows that what was decided for its seq and later is void.
func (h *history) other(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.others[seq] {
		h.others[seq] = true
		h.void(seq)
	}
}

// void forgets what was decided for seq and later. The lock is held.
func (h *history) void(seq uint64) {
	for next := range h.states {
		if next > seq {
			delete(h.states, next)
		}
	}
}

// begin begins to note: all that the owner before had decided beyond the end is void.
func (tr *traced) begin() {
	tr.h.mu.Lock()
	defer tr.h.mu.Unlock()
	if tr.live {
		return
	}
	tr.live = true
	tr.h.void(tr.next)
}

// Recovered comes behind what recovery itself persists.
func (tr *traced) Recovered(a *persistent.Context[event]) {
	tr.begin()
	tr.shelf.Recovered(a)
	tr.check()
}

func (tr *traced) Refuse(seq uint64, at int64, e event) (event, bool) {
	tr.begin()
	return tr.shelf.Refuse(seq, at, e)
}

// outcome notes an outcome that is told for what was decided up to seq last.
func (h *history) outcome(t *testing.T, c *persistent.Context[event], s *shelf, o *string, last uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch *o = is(t, err); {
	case err == nil && c.StoredSeq() < last:
		s.fail("told as stored at seq %d, stored is %d", last, c.StoredSeq())
	case err == nil:
		h.stored = max(h.stored, last)
	}
}

// begun notes that an outcome is open.
func (h *history) begun(o *string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*o = "unknown"
}

func (h *history) fate(id uint64) *fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.things[id]
}

// put has an actor put a thing with a body of some size.
func (h *history) put(t *testing.T, a *actor, size int) {
	f := &fate{put: "not stored"}
	h.mu.Lock()
	id := uint64(len(h.things))
	h.things = append(h.things, f)
	h.mu.Unlock()
	_ = a.Push(command{"put", func(c *persistent.Context[event], s *shelf) {
		h.begun(&f.put)
		e := put(string(make([]byte, size)))
		e.m = id
		if err := c.PersistAsync(e, note(1)); err != nil {
			s.fail("%v", err)
		}
		last := c.NextSeq() - 1
		s.groups = append(s.groups, [2]uint64{last - 1, last})
		c.After(func(err error) { h.outcome(t, c, s, &f.put, last, err) })
	}})
}

// take has an actor take the n-th thing that is there, counted from the oldest.
func (h *history) take(t *testing.T, a *actor, n int) {
	_ = a.Push(command{"take", func(c *persistent.Context[event], s *shelf) {
		seqs := s.seqs()
		if len(seqs) == 0 {
			return
		}
		seq := seqs[n%len(seqs)]
		f := h.fate(s.things[seq].id)
		h.begun(&f.take)
		if err := c.PersistAsync(take(seq)); err != nil {
			s.fail("%v", err)
		}
		last := c.NextSeq() - 1
		c.After(func(err error) { h.outcome(t, c, s, &f.take, last, err) })
	}})
}

// problems compares the state of a fresh owner with what was told.
func (h *history) problems(s *shelf) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := []error{s.broken}
	if s.next <= h.stored {
		errs = append(errs, fmt.Errorf("recovered up to %d, %d was told as stored", s.next-1, h.stored))
	}
	there := map[uint64]bool{}
	for _, th := range s.things {
		there[th.id] = true
	}
	for id, f := range h.things {
		must := f.put == "stored" && (f.take == "" || f.take == "not stored")
		mustNot := f.put == "not stored" || f.take == "stored"
		if there[uint64(id)] && mustNot || !there[uint64(id)] && must {
			errs = append(errs, fmt.Errorf("thing %d was told as %+v, there: %v", id, *f, there[uint64(id)]))
		}
	}
	return errors.Join(errs...)
}

// checkRecovery opens the stream of a store once more, and compares.
func (h *history) checkRecovery(t *testing.T, store *memory.Store) error {
	tr := h.shelf()
	a, err := persistent.Open(t.Context(), store.Open(), "shelf", tr, codec{}, quiet(persistent.Options{}))
	if err != nil {
		return err
	}
	err = a.Stop(t.Context())
	return errors.Join(err, h.problems(tr.shelf))
}
