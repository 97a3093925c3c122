package persistent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// §5: a stop drains: what was accepted is handled and stored, its callers are told, a snapshot is made, and the next
// owner replays nothing.
func TestStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{})
		release := hang(t, a)
		told := 0
		for i := range 100 {
			push := a.Push
			if i%3 == 0 {
				push = a.PushFirst
			}
			err := push(command{"work", func(c *persistent.Context[event], s *shelf) {
				if i%10 == 0 {
					if err := c.Persist(note(1)); err != nil {
						t.Error(err)
					}
				} else if err := c.PersistAsync(put("x")); err != nil {
					t.Error(err)
				}
				c.After(func(err error) {
					if err == nil {
						told++
					}
				})
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		j.Next(fault.Append, fault.Delay(time.Second), fault.Fail(), fault.LoseAnswer())
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() {
				if err := a.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		stops.Wait()
		if told != 100 || s.sum != 10 || len(s.things) != 90 {
			t.Errorf("told %d, state %s", told, s.state())
		}
		if err := a.Err(); !errors.Is(err, persistent.ErrStopped) || s.stopped != err {
			t.Errorf("Err %v, Stopped got %v", err, s.stopped)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Errorf("stopped again: %v", err)
		}
		if err := a.Push(command{}); !errors.Is(err, persistent.ErrStopped) {
			t.Errorf("push after stop: %v", err)
		}
		if _, err := a.Journal().Info(t.Context()); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("the stream was not released: %v", err)
		}
		_, s2 := open(t, j, persistent.Options{})
		if len(s2.records) != 0 || s2.state() != s.state() {
			t.Errorf("the next owner replays %d records, and gets state %s", len(s2.records), s2.state())
		}
	})
}

// §5: Context.Stop stops from within, and NoFinalSnapshot leaves the events to be replayed.
func TestStopFromWithin(t *testing.T) {
	j := memory.New()
	a, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
	if err := a.Push(command{"stop", func(c *persistent.Context[event], s *shelf) {
		if err := c.PersistAsync(note(1)); err != nil {
			t.Error(err)
		}
		c.Stop()
	}}); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	_, s2 := open(t, j, persistent.Options{})
	if s.snapshots != 0 || len(s2.records) != 1 || s2.sum != 1 {
		t.Errorf("%d snapshots, %d records replayed", s.snapshots, len(s2.records))
	}
}

// G9: Stop ends with its context whatever hangs: the store in an append, in a snapshot, in a discard, out of room,
// or the behavior itself. Then the actor is gone without a leak once the behavior returns.
func TestStopNeverHangs(t *testing.T) {
	for _, where := range []string{"append", "retry", "full", "snapshot", "discard", "behavior"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				a, _ := open(t, j, persistent.Options{RetryFirst: time.Hour, RetryCap: time.Hour, AppendTimeout: time.Hour, FullRetry: 2 * time.Second})
				never := make(chan struct{})
				release := make(chan struct{})
				switch where {
				case "append":
					j.Next(fault.Append, fault.HoldBefore(never))
				case "retry":
					j.Next(fault.Append, fault.Fail())
				case "full":
					j.SetFull(true)
				case "snapshot":
					j.Next(fault.WritePart, fault.HoldBefore(never))
				case "discard":
					for range 2 {
						if err := persist(t.Context(), a, note(1)); err != nil {
							t.Fatal(err)
						}
						if err := a.Stop(t.Context()); err != nil {
							t.Fatal(err)
						}
						a, _ = open(t, j, persistent.Options{})
					}
					j.Next(fault.DiscardMeta, fault.HoldBefore(never))
				}
				outcome := send(t, a, note(1))
				if where == "behavior" {
					release = hang(t, a)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				if err := a.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Stop: %v", err)
				}
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("Stop took %v", took)
				}
				want := map[string]string{"append": "unknown", "retry": "unknown", "full": "not stored"}[where]
				if want == "" {
					want = "stored"
				}
				if got := is(t, <-outcome); got != want {
					t.Errorf("who waited was told %s, want %s", got, want)
				}
				if where == "behavior" {
					select {
					case <-a.Done():
						t.Error("done while the behavior runs")
					default:
					}
					close(release)
				}
				<-a.Done()
				if a.Err() == nil || time.Since(began) != 5*time.Second {
					t.Errorf("the end came after %v: %v", time.Since(began), a.Err())
				}
			})
		})
	}
}

// G9: opening ends with its context, wherever the store hangs, and leaves nothing behind.
func TestOpenEndsWithItsContext(t *testing.T) {
	for _, op := range []fault.Op{fault.Acquire, fault.Info, fault.Parts, fault.ReadPart, fault.ReadMeta} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				a, s := open(t, j, persistent.Options{})
				if err := persist(t.Context(), a, note(1)); err != nil {
					t.Fatal(err)
				}
				stop(t, a, s)
				j.Next(op, fault.HoldBefore(make(chan struct{})))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := persistent.Open(ctx, j, "shelf", newShelf(), codec{}, quiet(persistent.Options{}))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("open: %v", err)
				}
			})
		})
	}
}

// §5, G9: stops, kills and commands that race end all the same, and everybody is told.
func TestStopRaces(t *testing.T) {
	j := memory.New()
	rounds := 40
	if soak() {
		rounds = 2000
	}
	for round := range rounds {
		a, _ := open(t, j, persistent.Options{Mailbox: 4, SnapshotEvents: 5})
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for {
					var err error
					if i%2 == 0 {
						err = persist(t.Context(), a, note(1))
					} else {
						err = a.Push(command{"push", func(c *persistent.Context[event], s *shelf) {
							if err := c.PersistAsync(put("y"), take(c.NextSeq())); err != nil {
								s.fail("%v", err)
							}
						}})
					}
					if err != nil {
						if is(t, err); !errors.Is(err, persistent.ErrStopped) {
							t.Errorf("round %d: %v", round, err)
						}
						return
					}
				}
			})
		}
		for i := range 1 + round%3 {
			all.Go(func() {
				if (round+i)%4 == 0 {
					a.Kill()
					return
				}
				if err := a.Stop(t.Context()); err != nil && round%4 != 0 && (round+i)%4 != 0 && round%3 == 0 {
					t.Error(fmt.Errorf("round %d: %w", round, err))
				}
			})
		}
		all.Wait()
		<-a.Done()
	}
}
