package persistent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// is tells which of the three outcomes an error is, and fails if it is more than one.
func is(t *testing.T, err error) string {
	t.Helper()
	n, u := errors.Is(err, persistent.ErrNotStored), errors.Is(err, persistent.ErrUnknown)
	switch {
	case err == nil:
		return "stored"
	case n && !u:
		return "not stored"
	case u && !n:
		return "unknown"
	}
	t.Errorf("error %v: not stored %v, unknown %v", err, n, u)
	return ""
}

// §4, §5: an append without an answer is repeated until it has one, keeps the state, and stores once.
func TestUnknownAppendIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{RetryFirst: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond})
		j.Next(fault.Append, fault.Fail(), fault.LoseAnswer(), fault.Fail(), fault.FailWith(errors.New("driver's own")), fault.Fail())
		began := time.Now()
		if err := persist(t.Context(), a, put("x"), note(3)); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(began), (10+20+40+50+50)*time.Millisecond; took != want {
			t.Errorf("five retries took %v, want %v", took, want)
		}
		state := stop(t, a, s)
		_, s2 := open(t, j, persistent.Options{})
		if s2.state() != state || s2.sum != 3 || len(s2.things) != 1 {
			t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
		}
	})
}

// Issue "store pauses", G4, G9, G10: a store that hangs 30 s costs no state; what is pending is bounded; callers wait by their
// contexts and get "unknown"; afterwards everything decided is stored exactly once.
func TestStorePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		const body = 1000
		a, s := open(t, j, persistent.Options{Mailbox: 50, MaxPendingBytes: 100 * body, MaxBatchBytes: 30 * body})
		j.Pause()
		outcomes := map[string]int{}
		results := make(chan string)
		for range 1000 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				results <- is(t, persist(ctx, a, put(string(make([]byte, body)))))
			}()
		}
		synctest.Wait()
		if p := a.Stats().PendingBytes; p < 99*body || p > 102*body {
			t.Errorf("%d bytes are pending, the limit is %d", p, 100*body)
		}
		for range 1000 {
			outcomes[<-results]++
		}
		if a.Err() != nil {
			t.Fatal(a.Err())
		}
		time.Sleep(10 * time.Second)
		j.Resume()
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if outcomes["stored"] != 0 || outcomes["not stored"] < 800 || outcomes["not stored"]+outcomes["unknown"] != 1000 {
			t.Errorf("outcomes %v", outcomes)
		}
		// Those whose context ended in the mailbox were accepted: their outcome is unknown, and they are handled now.
		if got := len(s.things); got != outcomes["unknown"] {
			t.Errorf("%d things are stored, %d outcomes are unknown", got, outcomes["unknown"])
		}
		state := stop(t, a, s)
		_, s2 := open(t, j, persistent.Options{})
		if s2.state() != state {
			t.Error("recovered another state")
		}
	})
}

// G5, G10: a fence drops the state; who waits learns that the record under way and all behind it are not stored,
// and that one stored before the fence is.
func TestFence(t *testing.T) {
	for _, c := range []struct {
		name        string
		first       fault.Action
		want, later string
		stored      int
	}{
		{"before the append", fault.Action{}, "not stored", "not stored", 0},
		{"unknown before commit", fault.Fail(), "not stored", "not stored", 0},
		{"stored, then fenced", fault.LoseAnswer(), "stored", "not stored", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := memory.NewStore(memory.Options{})
				if err != nil {
					t.Fatal(err)
				}
				j := fault.New(store.Open(), fault.Options{})
				a, s := open(t, j, persistent.Options{RetryFirst: time.Second})
				release := make(chan struct{})
				act := c.first
				if act.Before.Err == nil && act.After.Err == nil {
					act = fault.HoldBefore(release)
				}
				j.Next(fault.Append, act)
				got := make(chan string, 1)
				go func() { got <- is(t, persist(t.Context(), a, note(1))) }()
				synctest.Wait()
				later := make(chan error, 1)
				go func() { later <- persist(t.Context(), a, note(2)) }()
				synctest.Wait()
				b, s2 := open(t, store.Open(), persistent.Options{})
				close(release)
				if g := <-got; g != c.want {
					t.Errorf("the append under way is told as %s, want %s", g, c.want)
				}
				err = <-later
				if g := is(t, err); g != c.later || !errors.Is(err, journal.ErrFenced) {
					t.Errorf("the one behind it is told as %s: %v", g, err)
				}
				<-a.Done()
				if !errors.Is(a.Err(), journal.ErrFenced) || !errors.Is(s.stopped, journal.ErrFenced) {
					t.Errorf("actor ended with %v, Stopped got %v", a.Err(), s.stopped)
				}
				stop(t, b, s2)
				if int(s2.sum) != c.stored {
					t.Errorf("the new owner sees sum %d, want %d", s2.sum, c.stored)
				}
			})
		})
	}
}

// G5: an idle actor learns of its successor by CheckOwner, by a discard, or by a snapshot.
func TestIdleFence(t *testing.T) {
	for _, how := range []string{"check", "discard", "snapshot"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := memory.New()
				a, _ := open(t, j, persistent.Options{SnapshotEvery: time.Minute})
				if err := persist(t.Context(), a, put("x")); err != nil {
					t.Fatal(err)
				}
				if err := a.CheckOwner(t.Context()); err != nil {
					t.Fatal(err)
				}
				open(t, j, persistent.Options{})
				err := journal.ErrFenced
				switch how {
				case "check":
					err = a.CheckOwner(t.Context())
				case "discard":
					err = a.Journal().DiscardBodies(t.Context(), []journal.Range{{From: 1, To: 1}})
				case "snapshot":
					time.Sleep(time.Minute)
				}
				if !errors.Is(err, journal.ErrFenced) {
					t.Errorf("%s: %v", how, err)
				}
				<-a.Done()
				if !errors.Is(a.Err(), journal.ErrFenced) {
					t.Errorf("actor ended with %v", a.Err())
				}
			})
		})
	}
}

// G10: errors that end the actor, and what each proves.
func TestFatalAppendErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{journal.ErrConflict, "not stored"},
		{journal.ErrTooLarge, "not stored"},
		{journal.ErrInvalid, "not stored"},
		{journal.ErrClosed, "unknown"},
		{journal.ErrCorrupt, "unknown"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				a, _ := open(t, j, persistent.Options{})
				release := make(chan struct{})
				act := fault.HoldBefore(release)
				act.Before.Err = fmt.Errorf("driver: %w", c.err)
				j.Next(fault.Append, act)
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { first <- persist(t.Context(), a, note(1)) }()
				synctest.Wait()
				go func() { second <- persist(t.Context(), a, note(1)) }()
				synctest.Wait()
				close(release)
				err := <-first
				if got := is(t, err); got != c.want || !errors.Is(err, c.err) {
					t.Errorf("told as %s: %v", got, err)
				}
				// It was never given to the journal.
				if got := is(t, <-second); got != "not stored" {
					t.Errorf("the one behind it is told as %s", got)
				}
				<-a.Done()
				if !errors.Is(a.Err(), c.err) {
					t.Errorf("actor ended with %v", a.Err())
				}
			})
		})
	}
}

// G10: what waited for a record that may be stored is told unknown when the actor is killed; what was behind
// it, not stored.
func TestKillTellsUnknown(t *testing.T) {
	for sum, first := range map[int64]fault.Action{0: fault.Fail(), 5: fault.LoseAnswer()} {
		synctest.Test(t, func(t *testing.T) {
			inner := memory.New()
			j := fault.New(inner, fault.Options{})
			a, s := open(t, j, persistent.Options{RetryFirst: time.Hour, RetryCap: time.Hour})
			j.Next(fault.Append, first)
			outcomes := []chan error{send(t, a, note(5)), send(t, a, note(6))}
			do(t, a, func(c *persistent.Context[event], s *shelf) {
				if err := c.Persist(note(1)); err != nil {
					t.Error(err)
				}
			})
			if err := a.Push(command{name: "not begun"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			a.Kill()
			<-a.Done()
			if got := is(t, <-outcomes[0]); got != "unknown" {
				t.Errorf("the record under way is told as %s", got)
			}
			if got := is(t, <-outcomes[1]); got != "not stored" {
				t.Errorf("the one behind it is told as %s", got)
			}
			if len(s.undelivered) != 1 {
				t.Errorf("undelivered %v", s.undelivered)
			}
			_, s2 := open(t, inner, persistent.Options{})
			if s2.sum != sum {
				t.Errorf("recovered sum %d, want %d", s2.sum, sum)
			}
		})
	}
}
