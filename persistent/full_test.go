package persistent_test

import (
	"errors"
	"fmt"
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

// noBodies is a store that has room for records without bodies only.
func noBodies(c fault.Call) fault.Action {
	if c.Op == fault.Append && c.Record.BodyLen > 0 {
		return fault.Full()
	}
	return fault.Action{}
}

// send persists events, and sends the outcome.
func send(t *testing.T, a *actor, events ...event) chan error {
	got := make(chan error, 1)
	go func() { got <- persist(t.Context(), a, events...) }()
	synctest.Wait()
	return got
}

// §5: storage full refuses what has a body, tells so with proof, and lets deletes through, also
// those that were decided behind a refused event and for the same record.
func TestFullRefusesBodiesAndLetsDeletesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := newShelf()
		a := openWith(t, j, s, persistent.Options{FullRetry: time.Second})
		if err := persist(t.Context(), a, put("a", "b"), put("c")); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		j.SetPlan(noBodies)
		s.noting = true
		first := send(t, a, note(1)) // under way
		early := send(t, a)          // decides nothing, and saw nothing that is refused
		refused := send(t, a, put("d", "e"))
		deleted := send(t, a, take(1))
		mixed := send(t, a, note(2), put("f"))
		later := send(t, a, note(4))
		dirty := send(t, a) // decides nothing, and saw the things that are refused
		close(release)
		for _, ch := range []chan error{refused, mixed, dirty} {
			if err := <-ch; is(t, err) != "not stored" || !errors.Is(err, journal.ErrFull) {
				t.Errorf("refused event is told as %v", err)
			}
		}
		for _, ch := range []chan error{first, early, deleted, later} {
			if err := <-ch; err != nil {
				t.Errorf("event without a body: %v", err)
			}
		}
		want := `command persist
apply n at 4
command persist
command persist
apply p at 5
command persist
apply t at 7
command persist
apply n at 8
apply p at 9
command persist
apply n at 10
command persist
stored 4…4
full true
refuse 5
apply u at 11
refuse 9
apply u at 12
stored 5…12`
		synctest.Wait()
		if got := strings.Join(s.log, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if !a.Stats().Full {
			t.Error("Stats do not tell that it is full")
		}
		if len(s.things) != 2 || s.sum != 7 {
			t.Errorf("state is %s", s.state())
		}
		s.noting = false
		state := s.state()
		a.Kill()
		<-a.Done()
		_, s2 := open(t, j, persistent.Options{})
		if s2.state() != state {
			t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
		}
	})
}

// §5: while it is full, the store is asked every FullRetry, which leaves no trace, and an idle actor learns too when there
// is room; meanwhile a polite behavior refuses bodies up front, and everything else goes on.
func TestFullUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := newShelf()
		a := openWith(t, j, s, persistent.Options{FullRetry: time.Second, NoFinalSnapshot: true})
		j.SetPlan(noBodies)
		if err := persist(t.Context(), a, put("x")); !errors.Is(err, journal.ErrFull) {
			t.Fatal(err)
		}
		full := func() (full bool) {
			do(t, a, func(c *persistent.Context[event], s *shelf) {
				if full = c.Full(); full != s.full {
					t.Errorf("Full is %v, the behavior was told %v", full, s.full)
				}
			})
			return full
		}
		synctest.Wait()
		tries := j.Count(fault.Append)
		if tries != 2 {
			t.Errorf("%d appends, want the one that was refused and the one without the body", tries)
		}
		for range 10 {
			if !full() {
				t.Fatal("it has room")
			}
			if err := persist(t.Context(), a, note(1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := j.Count(fault.Append) - tries; n < 19 || n > 20 {
			t.Errorf("%d appends of 10 notes in ten seconds, want as many again that ask for room", n)
		}
		if got := a.Stats(); got.NextSeq != 13 || got.StoredSeq != 12 {
			t.Errorf("asking has left a trace: %+v", got)
		}
		j.SetPlan(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if a.Stats().Full || full() {
			t.Error("it is still full")
		}
		asked := s.records[len(s.records)-1]
		if asked.Kind != journal.KindEpoch || asked.First != 13 {
			t.Errorf("the last record is %+v", asked)
		}
		if err := persist(t.Context(), a, put("y")); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for rec, err := range a.Journal().ReadBodies(t.Context(), []uint64{13, 14}) {
			if err != nil || rec.First != 14 {
				t.Errorf("body at seq %d, %v", rec.First, err)
			}
		}
		state := stop(t, a, s)
		_, s2 := open(t, j, persistent.Options{})
		if s2.state() != state {
			t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
		}
	})
}

// §5, G9: while the question for room has no answer no command is begun, since its seq is open; it ends with the store's
// pause, whatever the answer.
func TestFullAskingHangs(t *testing.T) {
	for _, room := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := fault.New(memory.New(), fault.Options{})
			a, s := open(t, j, persistent.Options{FullRetry: time.Second, AppendTimeout: time.Second})
			j.SetPlan(noBodies)
			if err := persist(t.Context(), a, put("x")); !errors.Is(err, journal.ErrFull) {
				t.Fatal(err)
			}
			synctest.Wait()
			if room {
				j.SetPlan(nil)
			}
			j.Pause()
			time.Sleep(time.Second)
			outcome := send(t, a, note(1))
			time.Sleep(10 * time.Second)
			if got := a.Stats().NextSeq; got != 3 {
				t.Errorf("next seq is %d: a command was begun while the question for room was open", got)
			}
			j.Resume()
			if err := <-outcome; err != nil {
				t.Error(err)
			}
			state := stop(t, a, s)
			if s.full == room {
				t.Errorf("room %v: the behavior believes full %v", room, s.full)
			}
			_, s2 := open(t, j, persistent.Options{})
			if s2.state() != state {
				t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
			}
		})
	}
}

// G10: an event that was refused is told as not stored also if the actor is killed before its record without the
// body is stored.
func TestFullThenKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		j := fault.New(inner, fault.Options{})
		a, _ := open(t, j, persistent.Options{})
		release := make(chan struct{})
		j.Next(fault.Append, fault.Full(), fault.HoldAfter(release))
		refused, deleted := send(t, a, put("x")), send(t, a, take(1))
		a.Kill()
		<-a.Done()
		close(release)
		if err := <-refused; is(t, err) != "not stored" || !errors.Is(err, journal.ErrFull) {
			t.Errorf("the refused event is told as %v", err)
		}
		// It was decided while the record without the body was under way, so it has not been given to the journal.
		if err := <-deleted; is(t, err) != "not stored" {
			t.Errorf("what was behind it is told as %v", err)
		}
		_, s2 := open(t, inner, persistent.Options{})
		if len(s2.things) != 0 {
			t.Errorf("recovered %s", s2.state())
		}
	})
}

// §4: a question for room that was stored without an answer, and then refused by a store that does not settle such, makes
// the next record conflict: the actor stops, and nothing is lost.
func TestFullAskingLeavesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, _ := open(t, j, persistent.Options{FullRetry: time.Second})
		j.SetPlan(noBodies)
		if err := persist(t.Context(), a, put("x")); !errors.Is(err, journal.ErrFull) {
			t.Fatal(err)
		}
		synctest.Wait()
		j.Next(fault.Append, fault.LoseAnswer())
		time.Sleep(1500 * time.Millisecond)
		if err := persist(t.Context(), a, note(1)); is(t, err) != "not stored" || !errors.Is(err, journal.ErrConflict) {
			t.Errorf("told %v", err)
		}
		<-a.Done()
		_, s2 := open(t, j, persistent.Options{})
		if s2.sum != 0 || s2.next != 4 {
			t.Errorf("recovered %s", s2.state())
		}
	})
}

// §5: where there is not even room for records without bodies, and for behaviors that do not undo, everything waits and is
// stored once there is room, in order.
func TestFullWaits(t *testing.T) {
	for _, undoes := range []bool{false, true} {
		t.Run(fmt.Sprint("undoes ", undoes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				s := newShelf()
				s.undoes = func(event) bool { return undoes }
				a := openWith(t, j, s, persistent.Options{FullRetry: time.Second, NoFinalSnapshot: true})
				j.SetFull(true)
				outcomes := []chan error{send(t, a, note(1)), send(t, a, put("x")), send(t, a, take(2))}
				before := j.Count(fault.Append)
				time.Sleep(10*time.Second + time.Millisecond)
				tries, want := 10, []string{"stored", "stored", "stored"}
				if undoes {
					tries, want[1] = 11, "not stored" // one at once after the bodies were left out
				}
				if n := j.Count(fault.Append) - before; n != tries {
					t.Errorf("%d tries in ten seconds, want %d", n, tries)
				}
				j.SetFull(false)
				for i, ch := range outcomes {
					if got := is(t, <-ch); got != want[i] {
						t.Errorf("event %d is told as %s, want %s", i, got, want[i])
					}
				}
				state := stop(t, a, s)
				_, s2 := open(t, j, persistent.Options{})
				if s2.state() != state {
					t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
				}
			})
		})
	}
}

// §5: a crash between a record whose bodies were left out and the one that undoes its events: recovery undoes them.
func TestFullCrashBeforeUndo(t *testing.T) {
	for crashAt := 1; ; crashAt++ {
		finished := false
		t.Run(fmt.Sprint("crash at record ", crashAt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := memory.NewStore(memory.Options{MaxRecordBytes: 160})
				if err != nil {
					t.Fatal(err)
				}
				j := fault.New(store.Open(), fault.Options{Crash: store.Crash})
				a, s := open(t, j, persistent.Options{})
				release := make(chan struct{})
				j.Next(fault.Append, fault.HoldBefore(release))
				first := send(t, a, note(1))
				var puts []chan error
				for i := range 12 {
					puts = append(puts, send(t, a, put("some body"), note(1))) // together
					puts = append(puts, send(t, a, slices.Repeat([]event{note(1)}, 1+i%3)...))
				}
				n := 0
				j.SetPlan(func(c fault.Call) fault.Action {
					if c.Op != fault.Append {
						return fault.Action{}
					}
					if c.Record.BodyLen > 0 {
						return fault.Full()
					}
					if n++; n == crashAt {
						return fault.CrashAfter()
					}
					return fault.Action{}
				})
				close(release)
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				refused := 0
				for i, ch := range puts {
					err := <-ch
					if i%2 == 0 && err == nil {
						t.Errorf("put %d is told as stored", i)
					}
					if i%2 == 0 && errors.Is(err, journal.ErrFull) {
						refused++
					}
				}
				if finished = a.Err() == nil; finished {
					if len(s.things) != 0 || crashAt < 5 || refused != 12 {
						t.Fatalf("%d records, %d refused, state %s", crashAt-1, refused, s.state())
					}
					return
				}
				b, s2 := open(t, store.Open(), persistent.Options{})
				synctest.Wait()
				if len(s2.things) != 0 {
					t.Errorf("recovered %d things without bodies", len(s2.things))
				}
				state := s2.state()
				if err := persist(t.Context(), b, note(100)); err != nil {
					t.Error(err)
				}
				b.Kill()
				<-b.Done()
				_, s3 := open(t, store.Open(), persistent.Options{})
				if s3.sum != s2.sum || len(s3.things) != 0 {
					t.Errorf("recovered again\n%s\nbefore\n%s", s3.state(), state)
				}
				for i := range s3.records[:len(s3.records)-1] {
					if s3.records[i].BodyLen > 0 {
						t.Errorf("record %d has a body", i)
					}
				}
			})
		})
		if finished || t.Failed() {
			return
		}
	}
}

// §5: a record never has both bodies and events whose body was left out, so that whoever replays it knows where
// each body is.
func TestFullNeverMixesBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := newShelf()
		s.undoes = func(e event) bool { return e.size != 4 }
		a := openWith(t, j, s, persistent.Options{NoFinalSnapshot: true})
		j.SetPlan(noBodies)
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		send(t, a, note(1))
		for _, body := range []string{"refused", "kept", "kep2", "refused 2", "refused 3", "kep3"} {
			send(t, a, put(body))
		}
		close(release)
		synctest.Wait()
		j.SetPlan(nil)
		time.Sleep(time.Minute)
		state := stop(t, a, s)
		b, s2 := open(t, j, persistent.Options{})
		if s2.state() != state || len(s2.things) != 3 {
			t.Errorf("recovered\n%s\nwant\n%s", s2.state(), state)
		}
		var first []uint64
		for _, h := range s2.records {
			first = append(first, h.First)
		}
		var bodies string
		for rec, err := range b.Journal().ReadBodies(t.Context(), first) {
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for seq, th := range s2.things {
				if rec.First <= seq && seq <= rec.Last() {
					want += th.size
				}
			}
			if int(rec.BodyLen) != want {
				t.Errorf("record %d…%d has %d bytes of body, want those of the things that are there: %d", rec.First, rec.Last(), rec.BodyLen, want)
			}
			for _, refused := range []uint64{2, 5, 6} {
				if rec.First <= refused && refused <= rec.Last() {
					t.Errorf("record %d…%d has bodies, and the refused put at seq %d", rec.First, rec.Last(), refused)
				}
			}
			for _, c := range rec.Body {
				bodies += string(c)
			}
		}
		if bodies != "keptkep2kep3" {
			t.Errorf("bodies %q", bodies)
		}
	})
}

// G10: a record that was refused after a try without an answer, and formed anew, meets its first form if that comes late:
// nothing is then told as proved.
func TestFullThenLateTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.NewStore(memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := fault.New(store.Open(), fault.Options{})
		a, _ := open(t, j, persistent.Options{AppendTimeout: time.Second, RetryFirst: time.Second})
		late := make(chan struct{})
		again := make(chan struct{})
		j.Next(fault.Append, fault.HoldLate(late), fault.Full(), fault.HoldBefore(again))
		got := send(t, a, put("x"))
		time.Sleep(2500 * time.Millisecond)
		close(late)
		synctest.Wait()
		close(again)
		err = <-got
		if is(t, err) != "unknown" || !errors.Is(err, journal.ErrConflict) {
			t.Errorf("told as %v", err)
		}
		<-a.Done()
		_, s2 := open(t, store.Open(), persistent.Options{})
		if len(s2.things) != 1 {
			t.Errorf("recovered %s", s2.state())
		}
	})
}

// §5: a snapshot that was captured before the store was full must not be saved without the undoing.
func TestFullDropsCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{SnapshotEvents: 3})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		first := send(t, a, note(1))
		refused := send(t, a, put("x"), note(1))
		if s.snapshots != 1 {
			t.Fatalf("%d captures", s.snapshots)
		}
		j.SetPlan(noBodies)
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-refused; is(t, err) != "not stored" {
			t.Errorf("told %v", err)
		}
		synctest.Wait()
		for id := range s.records {
			if slices.Contains([]uint64{2, 3}, s.records[id].Last()) {
				t.Errorf("record ends at %d", s.records[id].Last())
			}
		}
		if got := a.Stats().SnapshotSeq; got != 4 || s.snapshots != 2 {
			t.Errorf("snapshot at seq %d after %d captures, want seq 4 after 2", got, s.snapshots)
		}
	})
}

// G4: an actor that has to wait before it asks the store again does not spin meanwhile on a command that it cannot begin: it would take
// the processor, and the turns of others in its pool.
func TestFullDoesNotSpinOnWhatHurries(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := fault.New(memory.New(), fault.Options{})
			var full atomic.Bool
			var looks atomic.Int64
			const most = 10_000
			o := persistent.Options{FullRetry: time.Second, Clock: func() time.Time {
				if full.Load() && looks.Add(1) == most { // else it would never end
					full.Store(false)
					return time.Now().Add(time.Hour)
				}
				return time.Now()
			}}
			if pooled {
				o.Pool = new(persistent.Pool)
			}
			a, _ := open(t, j, o)
			full.Store(true)
			j.SetPlan(func(c fault.Call) fault.Action {
				if c.Op == fault.Append && full.Load() {
					return fault.Full()
				}
				return fault.Action{}
			})
			first, second := send(t, a, note(1)), send(t, a, note(2)) // two records: no command is begun before they are stored
			if err := a.PushFirst(command{"hurried", func(*persistent.Context[event], *shelf) {}}); err != nil {
				t.Fatal(err)
			}
			pass(t, 10*time.Second)
			if n := looks.Load(); n >= most/10 {
				t.Errorf("it looked around %d times in 10 s", n)
			}
			full.Store(false)
			if err := errors.Join(<-first, <-second, a.Stop(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}
