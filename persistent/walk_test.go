package persistent_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// A step of a random walk: what it does with a walker and a number.
type step struct {
	op string
	n  int
}

var steps = map[string]func(w *walker, n int){
	"put":  func(w *walker, n int) { w.h.put(w.t, w.a, n*4) },
	"take": func(w *walker, n int) { w.h.take(w.t, w.a, n) },
	"persist": func(w *walker, n int) { // with later commands waiting
		_ = w.a.Push(command{"persist", func(c *persistent.Context[event], s *shelf) {
			if err := c.Persist(note(n), note(1)); err != nil {
				s.fail("%v", err)
			}
		}})
	},
	"settle": func(w *walker, _ int) { synctest.Wait() },
	"sleep":  func(w *walker, n int) { pass(w.t, time.Duration(n)*100*time.Millisecond) },
	"fail":   func(w *walker, _ int) { w.j.Next(fault.Append, fault.Fail()) },
	"lose":   func(w *walker, _ int) { w.j.Next(fault.Append, fault.LoseAnswer()) },
	"part fails": func(w *walker, n int) {
		w.j.Next([]fault.Op{fault.WritePart, fault.DeleteParts, fault.DiscardMeta}[n%3], fault.Fail())
	},
	"hold": func(w *walker, n int) {
		ch := make(chan struct{})
		w.holds = append(w.holds, ch)
		w.j.Next(fault.Append, []func(<-chan struct{}) fault.Action{fault.HoldBefore, fault.HoldAfter, fault.HoldLate}[n%3](ch))
	},
	"let go":   func(w *walker, _ int) { w.letGo() },
	"full":     func(w *walker, _ int) { w.bodies.Store(true) },
	"all full": func(w *walker, _ int) { w.j.SetFull(true) },
	"room":     func(w *walker, _ int) { w.room() },
	"buffered": func(w *walker, n int) {
		_ = w.a.Push(command{"buffered", func(c *persistent.Context[event], _ *shelf) { c.SetBuffered(n%2 == 0) }})
	},
	"kill": func(w *walker, _ int) { w.next(w.a.Kill) },
	"stop": func(w *walker, _ int) {
		w.letGo()
		w.room()
		w.next(func() {
			if err := w.a.Stop(w.t.Context()); err != nil && w.a.Err() == nil {
				w.problem = err
			}
		})
	},
	"fence": func(w *walker, _ int) {
		old, s, j := w.a, w.s, w.j
		w.open()
		synctest.Wait()
		j.SetFull(false)
		w.letGo()
		pass(w.t, 5*time.Second)
		old.Kill() // an idle one does not know
		<-old.Done()
		w.problem = errors.Join(w.problem, s.broken)
	},
}

// §12: a random walk through what can happen, against a naive model: what was told as stored is there, what was
// told as not stored is not, whatever is unknown may be; and each owner has the states of the one before.
func TestRandomWalk(t *testing.T) {
	ops := []string{"put", "put", "put", "put", "put", "take", "take", "persist", "settle", "settle", "sleep", "fail", "lose",
		"part fails", "hold", "let go", "full", "all full", "room", "room", "kill", "stop", "fence"}
	draw := rapid.Custom(func(t *rapid.T) step {
		return step{rapid.SampledFrom(ops).Draw(t, "op"), rapid.IntRange(0, 40).Draw(t, "n")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(draw, 60, 200).Draw(rt, "script")
		epochRecords := rapid.Bool().Draw(rt, "epoch records")
		var err error
		synctest.Test(t, func(t *testing.T) { err = walk(t, script, epochRecords) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// walker runs a script.
type walker struct {
	t       *testing.T
	store   *memory.Store
	j       *fault.Journal
	bodies  *atomic.Bool // is the store full for them
	h       *history
	a       *actor
	s       *shelf
	holds   []chan struct{}
	problem error
}

func walk(t *testing.T, script []step, epochRecords bool) error {
	store, err := memory.NewStore(memory.Options{EpochRecords: epochRecords, MaxRecordBytes: 400})
	if err != nil {
		return err
	}
	w := &walker{t: t, store: store, h: newHistory()}
	w.open()
	for i, st := range script {
		if steps[st.op](w, st.n); w.problem != nil {
			w.letGo()
			w.a.Kill()
			return fmt.Errorf("step %d, %s: %w", i, st.op, w.problem)
		}
	}
	steps["stop"](w, 0)
	steps["stop"](w, 0)
	w.a.Kill()
	<-w.a.Done()
	return w.problem
}

func (w *walker) open() {
	w.j, w.bodies = fault.New(w.store.Open(), fault.Options{}), &atomic.Bool{}
	bodies := w.bodies
	w.j.SetPlan(func(c fault.Call) fault.Action {
		if c.Op == fault.Append && bodies.Load() && c.Record.BodyLen > 0 {
			return fault.Full()
		}
		return fault.Action{}
	})
	tr := w.h.shelf()
	w.s = tr.shelf
	a, err := persistent.Open(w.t.Context(), w.j, "shelf", tr, codec{},
		quiet(persistent.Options{SnapshotEvents: 15, MaxBatchBytes: 250, MaxPendingBytes: 1500, AppendTimeout: time.Second}))
	if err != nil {
		w.problem = err
		return
	}
	w.a = a
}

// next ends the actor by f, and opens another one.
func (w *walker) next(f func()) {
	f()
	<-w.a.Done()
	w.letGo()
	synctest.Wait()
	w.problem = errors.Join(w.problem, w.s.broken)
	if w.problem == nil {
		w.open()
		synctest.Wait()
	}
	if w.problem == nil {
		w.problem = w.h.problems(w.s)
	}
}

func (w *walker) letGo() {
	for _, ch := range w.holds {
		close(ch)
	}
	w.holds = nil
}

func (w *walker) room() {
	w.bodies.Store(false)
	w.j.SetFull(false)
}
