package persistent_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// §12, G1, G10: a crash before and after every single call that changes the store, in lives with group commit, a full store,
// snapshots and discards: whoever comes next has the state that the owner had at the seq where the stored
// events end, with everything that was told as stored, and nothing that was told as not stored.
func TestCrashAtEveryStep(t *testing.T) {
	stride, first := 1, 1
	if !soak() { // some of them, other ones each time
		stride = 7
		first = 1 + rand.IntN(stride)
		t.Logf("every %dth call from the %dth on", stride, first)
	}
	for _, epochRecords := range []bool{false, true} {
		steps := 0
		for step := first; ; step += stride {
			for _, cut := range []fault.Action{fault.CrashBefore(), fault.CrashAfter()} {
				synctest.Test(t, func(t *testing.T) {
					store, err := memory.NewStore(memory.Options{EpochRecords: epochRecords, MaxRecordBytes: 250})
					if err != nil {
						t.Fatal(err)
					}
					h := newHistory()
					j := fault.New(store.Open(), fault.Options{Crash: store.Crash})
					n, full := atomic.Int64{}, atomic.Bool{}
					j.SetPlan(func(c fault.Call) fault.Action {
						if c.Op == fault.Append && full.Load() && c.Record.BodyLen > 0 {
							return fault.Full()
						}
						if n := n.Add(1); !c.Op.Changes() || int(n) != step {
							return fault.Action{}
						}
						return cut
					})
					lives(t, j, h, &full)
					steps = int(n.Load())
					if err := h.checkRecovery(t, store); err != nil {
						t.Errorf("crash at call %d, %+v: %v", step, cut, err)
					}
				})
			}
			if t.Failed() {
				return
			}
			if step > steps {
				break
			}
		}
		if steps < 150 {
			t.Errorf("the lives had %d calls only", steps)
		}
	}
}

// lives is what three owners do, one after the other, until the store crashes.
func lives(t *testing.T, j *fault.Journal, h *history, full *atomic.Bool) {
	for life := range 3 {
		tr := h.shelf()
		a, err := persistent.Open(t.Context(), j, "shelf", tr, codec{}, quiet(persistent.Options{SnapshotEvents: 12, FullRetry: time.Second, MaxBatchBytes: 150}))
		if err != nil {
			return
		}
		for i := range 24 {
			h.put(t, a, i)
			if i%3 == 2 {
				h.take(t, a, i)
			}
			if i%5 == 0 {
				synctest.Wait()
			}
			if full.Store(i >= 12 && i < 18); i == 18 {
				pass(t, 2*time.Second)
			}
		}
		synctest.Wait()
		if life == 1 {
			a.Kill()
		} else if err := a.Stop(t.Context()); err != nil && a.Err() == nil {
			t.Error(err)
		}
		<-a.Done()
		if tr.broken != nil {
			t.Error(fmt.Errorf("life %d: %w", life, tr.broken))
		}
	}
}
