package persistent_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// G1, §3: events apply when decided; outputs wait for storage, and run in order.
func TestEventsApplyWhenDecidedOutputsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := newShelf()
		s.noting = true
		a := openWith(t, j, s, persistent.Options{})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		for _, name := range []string{"one", "two"} {
			do(t, a, func(c *persistent.Context[event], s *shelf) {
				before := c.NextSeq()
				if err := c.PersistAsync(note(1)); err != nil {
					t.Error(err)
				}
				if c.NextSeq() != before+1 || s.next != before+1 || c.StoredSeq() != 0 {
					t.Errorf("after persist: next %d, applied to %d, stored %d", c.NextSeq(), s.next, c.StoredSeq())
				}
				c.After(func(err error) { s.note("after %s: %v, stored %d", name, err, c.StoredSeq()) })
			})
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		stop(t, a, s)
		got := strings.Join(s.log, "\n")
		want := `recovered
command do
apply n at 1
command do
apply n at 2
stored 1…1
after one: <nil>, stored 1
stored 2…2
after two: <nil>, stored 2
stopped`
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// §5: after Persist, later commands wait until the event is stored; After without anything pending runs at
// once, behind its command.
func TestPersistHoldsUpLaterCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := newShelf()
		s.noting = true
		a := openWith(t, j, s, persistent.Options{})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		do(t, a, func(c *persistent.Context[event], s *shelf) {
			if err := c.Persist(note(1)); err != nil {
				t.Error(err)
			}
		})
		if err := a.TryTell(command{"later", func(c *persistent.Context[event], s *shelf) {
			c.After(func(err error) { s.note("after later") })
			s.note("end of later")
		}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if slices.Contains(s.log, "command later") {
			t.Error("a command was begun before the event was stored")
		}
		close(release)
		synctest.Wait()
		stop(t, a, s)
		got := strings.Join(s.log[3:], ", ")
		if want := "stored 1…1, command later, end of later, after later, stopped"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// §5 group commit: an idle actor's first command is written at once, and what arrives meanwhile forms the next record.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		began := time.Now()
		for range 100 {
			go func() {
				if err := persist(t.Context(), a, put("body")); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if n := j.Count(fault.Append); n != 1 {
			t.Fatalf("%d appends while one is under way", n)
		}
		close(release)
		synctest.Wait()
		if time.Since(began) != 0 {
			t.Errorf("it took %v of virtual time: a timer is in the way", time.Since(began))
		}
		stop(t, a, s)
		var counts []uint64
		for _, h := range s.records {
			counts = append(counts, h.Count)
		}
		if !slices.Equal(counts, []uint64{1, 99}) {
			t.Errorf("records of %v events, want 1 and 99", counts)
		}
	})
}

// §4, §5: records keep to the limits, and a group persisted together is never split.
func TestRecordLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.NewStore(memory.Options{MaxRecordBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		j := fault.New(store.Open(), fault.Options{})
		a, s := open(t, j, persistent.Options{MaxBatchBytes: 700})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		body := strings.Repeat("x", 100)
		var groups [][2]uint64 // first and last seq
		do(t, a, func(c *persistent.Context[event], s *shelf) {
			for i := range 40 {
				g := slices.Repeat([]event{put(body)}, 1+i%8)
				first := c.NextSeq()
				if err := c.PersistAsync(g...); err != nil {
					t.Error(err)
				}
				groups = append(groups, [2]uint64{first, c.NextSeq() - 1})
			}
			next, state := c.NextSeq(), s.state()
			if err := c.PersistAsync(slices.Repeat([]event{put(body)}, 20)...); !errors.Is(err, journal.ErrTooLarge) {
				t.Errorf("group over the record's limit: %v", err)
			}
			if err := c.PersistAsync(note(1), event{kind: kindBad}); err == nil {
				t.Error("an event that does not encode was accepted")
			}
			if err := c.PersistAsync(put()); err == nil {
				t.Error("an event of no seqs was accepted")
			}
			if c.NextSeq() != next || s.state() != state {
				t.Error("a refused event left a trace")
			}
		})
		close(release)
		synctest.Wait()
		state := stop(t, a, s)
		for _, g := range groups {
			if !slices.ContainsFunc(s.records, func(h journal.Header) bool { return h.First <= g[0] && g[1] <= h.Last() }) {
				t.Errorf("group %d…%d was split", g[0], g[1])
			}
		}
		large := 0
		for _, h := range s.records {
			if h.Size() > 700 && h.Count > 8 {
				t.Errorf("record %d…%d of %d bytes, over MaxBatchBytes though several groups are in it", h.First, h.Last(), h.Size())
			}
			large = max(large, h.Size())
		}
		if large < 800 || len(s.records) > 40 {
			t.Errorf("%d records, the largest of %d bytes", len(s.records), large)
		}
		b, s2 := open(t, j, persistent.Options{})
		if got := stop(t, b, s2); got != state {
			t.Errorf("recovered\n%s\nwant\n%s", got, state)
		}
	})
}

// §4: what is accepted fits into a record: no append is refused for its size, up to the last byte, with one event or many.
func TestRecordLimitToTheByte(t *testing.T) {
	for _, events := range []int{1, 7} {
		store, err := memory.NewStore(memory.Options{MaxRecordBytes: 800})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := open(t, store.Open(), persistent.Options{})
		for n := 0; ; n++ {
			e := append(slices.Repeat([]event{note(1)}, events-1), put(strings.Repeat("x", n)))
			if err := persist(t.Context(), a, e...); err != nil {
				if !errors.Is(err, journal.ErrTooLarge) || a.Err() != nil {
					t.Errorf("%d events, body of %d bytes: %v", events, n, err)
				}
				if n < 400 {
					t.Errorf("%d events: a body of %d bytes is refused, the limit of a record is 800", events, n)
				}
				break
			}
		}
	}
}

// §5: queue time stands still in a call, never decreases, and goes on from the stream's last time whatever
// the wall clock says.
func TestQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		skew := atomic.Int64{}
		skew.Store(int64(time.Hour))
		o := persistent.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(skew.Load())).Round(0) }}
		a, s := open(t, j, o)
		var first int64
		do(t, a, func(c *persistent.Context[event], s *shelf) {
			first = c.Now()
			time.Sleep(time.Second) // virtual
			if err := c.PersistAsync(note(1)); err != nil {
				t.Error(err)
			}
			if c.Now() != first || s.at != first {
				t.Errorf("Now went from %d to %d in one call, the event is at %d", first, c.Now(), s.at)
			}
		})
		if want := time.Now().Add(time.Hour - time.Second).UnixMilli(); first != want {
			t.Errorf("Now is %d, want %d", first, want)
		}
		synctest.Wait()
		skew.Store(0) // an hour back
		do(t, a, func(c *persistent.Context[event], s *shelf) {
			if c.Now() != first+1000 {
				t.Errorf("after a step back Now is %d, want %d", c.Now(), first+1000)
			}
		})
		stop(t, a, s)
		b, _ := open(t, j, o)
		time.Sleep(3 * time.Second)
		do(t, b, func(c *persistent.Context[event], s *shelf) {
			if c.Now() != first+3000 {
				t.Errorf("three seconds after recovery Now is %d, the last event was at %d", c.Now(), first)
			}
		})
	})
}

// §5: Wake comes at its time, once, and can be moved and cancelled.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := open(t, memory.New(), persistent.Options{})
		start := time.Now().UnixMilli()
		at := func(ms int64) {
			do(t, a, func(c *persistent.Context[event], s *shelf) { c.WakeAt(ms) })
		}
		at(start + 5000)
		time.Sleep(time.Second)
		at(start + 3000) // earlier
		time.Sleep(time.Second)
		at(start + 8000) // later
		time.Sleep(20 * time.Second)
		at(start + 30_000)
		at(0) // cancelled
		time.Sleep(20 * time.Second)
		at(start) // past
		synctest.Wait()
		want := []int64{start + 8000, start + 42_000}
		if !slices.Equal(s.wakes, want) {
			t.Errorf("woken at %v, want %v", s.wakes, want)
		}
	})
}

// §5: a panic stops that actor, tells who waits, and not the process.
func TestPanicStopsTheActor(t *testing.T) {
	for _, where := range []string{"command", "after", "apply", "goexit", "persist in apply"} {
		t.Run(where, func(t *testing.T) {
			j := memory.New()
			a, s := open(t, j, persistent.Options{})
			if err := persist(t.Context(), a, note(7)); err != nil {
				t.Fatal(err)
			}
			hold := make(chan struct{})
			outcomes := make(chan error, 2)
			err := a.Tell(t.Context(), command{"boom", func(c *persistent.Context[event], s *shelf) {
				<-hold
				c.After(func(err error) { outcomes <- err })
				switch where {
				case "command":
					if err := c.PersistAsync(note(1)); err != nil {
						t.Error(err)
					}
					c.After(func(err error) { outcomes <- err })
					panic("boom")
				case "after":
					c.After(func(error) { panic("boom") })
				case "apply":
					s.things = nil
					_ = c.PersistAsync(put("x"))
				case "goexit":
					runtime.Goexit() // as a mistaken t.FailNow does
				case "persist in apply":
					_ = c.PersistAsync(event{kind: kindCall, call: func() { _ = c.PersistAsync(note(1)) }})
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.TryTell(command{name: "behind"}); err != nil {
				t.Fatal(err)
			}
			close(hold)
			<-a.Done()
			if p := (*persistent.PanicError)(nil); !errors.As(a.Err(), &p) || !errors.Is(a.Err(), persistent.ErrStopped) {
				t.Errorf("actor ended with %v", a.Err())
			}
			if err := <-outcomes; err != nil {
				t.Errorf("what waited for stored events was told %v", err)
			}
			if where == "command" {
				if err := <-outcomes; !errors.Is(err, persistent.ErrNotStored) {
					t.Errorf("what waited for the panicked command was told %v", err)
				}
			}
			if where != "after" && !slices.Equal(s.undelivered, []string{"behind"}) {
				t.Errorf("undelivered %v", s.undelivered)
			}
			if err := persist(t.Context(), a, note(1)); !errors.Is(err, persistent.ErrNotStored) || !errors.Is(err, persistent.ErrStopped) {
				t.Errorf("after the end: %v", err)
			}
			_, s2 := open(t, j, persistent.Options{})
			if s2.sum != 7 {
				t.Errorf("recovered sum %d, want 7", s2.sum)
			}
		})
	}
}

// G11: all faults of the options are reported together.
func TestOptionsRefused(t *testing.T) {
	_, err := persistent.Open(t.Context(), memory.New(), "shelf", newShelf(), codec{}, persistent.Options{
		Mailbox: -1, MaxBatchBytes: -1, MaxPendingBytes: -1, AppendTimeout: -1, RetryFirst: 2, RetryCap: 1,
		FullRetry: -1, SnapshotBytes: -1, SnapshotEvents: -1, SnapshotEvery: -1,
	})
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 9 {
		t.Fatalf("got %v, want nine faults", err)
	}
}

// G10, §5: Ask answers once, and Stats tell what happened.
func TestAskAndStats(t *testing.T) {
	a, _ := open(t, memory.New(), persistent.Options{})
	for i := range 3 {
		got, err := persistent.Ask(t.Context(), a, func(reply persistent.Reply[int64]) command {
			return command{"ask", func(c *persistent.Context[event], s *shelf) {
				if err := c.PersistAsync(note(i)); err != nil {
					t.Error(err)
				}
				sum := s.sum
				c.After(func(err error) { reply(sum, err); reply(-1, errors.New("again")) })
			}}
		})
		if want := int64(i * (i + 1) / 2); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := a.Stats()
	if got := fmt.Sprint(st.NextSeq, st.StoredSeq, st.Records, st.Events, st.Epoch, st.SnapshotSeq, st.PendingBytes); got != "4 3 3 3 1 3 0" {
		t.Errorf("stats %s", got)
	}
}
