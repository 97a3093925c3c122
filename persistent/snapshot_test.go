package persistent_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// persistN persists n events, each in a record of its own.
func persistN(t *testing.T, a *actor, n int, e event) {
	t.Helper()
	for range n {
		if err := persist(t.Context(), a, e); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a snapshot, too
	}
}

// §5: snapshots come by events, by bytes of meta and by time, not while nothing happens, and after a long replay.
func TestSnapshotReasons(t *testing.T) {
	never := persistent.Options{SnapshotBytes: persistent.Never, SnapshotEvents: persistent.Never, SnapshotEvery: persistent.Never, NoFinalSnapshot: true}
	for _, c := range []struct {
		name string
		set  func(o *persistent.Options)
		run  func(t *testing.T, a *actor)
		want int
	}{
		{"never", func(o *persistent.Options) {}, func(t *testing.T, a *actor) {
			persistN(t, a, 1000, note(1))
			pass(t, 1000*time.Hour)
		}, 0},
		{"events", func(o *persistent.Options) { o.SnapshotEvents = 10 }, func(t *testing.T, a *actor) {
			persistN(t, a, 39, note(1))
			pass(t, 1000*time.Hour)
		}, 3},
		{"bytes", func(o *persistent.Options) { o.SnapshotBytes = 132 }, func(t *testing.T, a *actor) {
			persistN(t, a, 39, note(1)) // of 12 bytes each, the time included
		}, 3},
		{"bytes of a state larger than that", func(o *persistent.Options) { o.SnapshotBytes = 1 }, func(t *testing.T, a *actor) {
			persistN(t, a, 39, put("body"))
		}, 4},
		{"time", func(o *persistent.Options) { o.SnapshotEvery = time.Minute }, func(t *testing.T, a *actor) {
			for range 3 {
				pass(t, time.Hour)
				persistN(t, a, 5, note(1))
				pass(t, 30*time.Second)
				persistN(t, a, 5, note(1))
			}
			pass(t, 31*time.Second)
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := never
				c.set(&o)
				a, s := open(t, memory.New(), o)
				c.run(t, a)
				synctest.Wait()
				stop(t, a, s)
				if s.snapshots != c.want {
					t.Errorf("%d snapshots, want %d", s.snapshots, c.want)
				}
			})
		})
	}
	for events, want := range map[int64]int{10: 1, 11: 0} {
		synctest.Test(t, func(t *testing.T) {
			j := memory.New()
			a, s := open(t, j, never)
			persistN(t, a, 10, note(1))
			stop(t, a, s)
			o := never
			o.SnapshotEvents, o.SnapshotEvery = events, time.Minute
			b, _ := open(t, j, o)
			for _, want := range []int{want, 1} {
				synctest.Wait()
				do(t, b, func(_ *persistent.Context[event], s2 *shelf) {
					if s2.snapshots != want || (b.Stats().SnapshotSeq == 10) != (want == 1) {
						t.Errorf("after a replay of 10 events with SnapshotEvents %d: %d snapshots, stats %+v", events, s2.snapshots, b.Stats())
					}
				})
				pass(t, time.Minute)
			}
		})
	}
}

// §4, §5: metas are discarded behind the older of the two kept snapshots, and recovery goes from the newest; from the older one
// if the newest is damaged; and if neither loads, the stream is not opened.
func TestSnapshotsAndDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		a, s := open(t, j, persistent.Options{SnapshotEvents: 10, NoFinalSnapshot: true})
		lows := []uint64{1, 11, 21, 31}
		for i := range 4 {
			persistN(t, a, 10, put("x"))
			info, err := a.Journal().Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if info.Low != lows[i] {
				t.Errorf("after %d snapshots Low is %d, want %d", i+1, info.Low, lows[i])
			}
		}
		persistN(t, a, 5, note(1))
		state := stop(t, a, s)
		for _, c := range []struct{ damaged, records int }{{0, 5}, {1, 15}} {
			if c.damaged == 1 {
				st := acquire(t, j)
				parts, err := st.Parts(t.Context(), "m/0000000000000028") // the manifest at seq 40
				if err != nil || len(parts) != 1 {
					t.Fatal(parts, err)
				}
				if err := st.WritePart(t.Context(), parts[0], []byte("damaged")); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			b, s2 := open(t, j, persistent.Options{NoFinalSnapshot: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if n := strings.Count(log.String(), "snapshot passed over"); n != c.damaged {
				t.Errorf("%d damaged: log is %q", c.damaged, log.String())
			}
			if len(s2.records) != c.records || s2.state() != state {
				t.Errorf("%d damaged: replayed %d records, want %d; state\n%s\nwant\n%s", c.damaged, len(s2.records), c.records, s2.state(), state)
			}
			stop(t, b, s2)
		}
		st := acquire(t, j)
		parts, err := st.Parts(t.Context(), "m/0")
		if err != nil {
			t.Fatal(err)
		}
		if err := st.DeleteParts(t.Context(), parts); err != nil {
			t.Fatal(err)
		}
		s3 := newShelf()
		_, err = persistent.Open(t.Context(), j, "shelf", s3, codec{}, quiet(persistent.Options{}))
		if !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("without snapshots: %v", err)
		}
	})
}

// §4, §5: a Restore that fails in the middle gets the snapshot before, or none, and no trace is left of its first try.
func TestRestoreFails(t *testing.T) {
	for _, c := range []struct {
		final    bool
		restores string
		records  int
	}{{true, "[19 10]", 9}, {false, "[10 0]", 19}} {
		synctest.Test(t, func(t *testing.T) {
			j := memory.New()
			a, s := open(t, j, persistent.Options{SnapshotEvents: 10, NoFinalSnapshot: !c.final})
			persistN(t, a, 19, put("x"))
			state := stop(t, a, s)
			picky := &pickyShelf{shelf: newShelf(), fails: 1}
			b, err := persistent.Open(t.Context(), j, "shelf", picky, codec{}, quiet(persistent.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if fmt.Sprint(picky.restores) != c.restores || picky.state() != state || len(picky.records) != c.records {
				t.Errorf("restores %v, %d records replayed, state\n%s\nwant\n%s", picky.restores, len(picky.records), picky.state(), state)
			}
		})
	}
}

// pickyShelf fails to restore a number of times, after it has done half of it.
type pickyShelf struct {
	*shelf
	fails int
}

func (p *pickyShelf) Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	err := p.shelf.Restore(id, chunks)
	if p.fails > 0 {
		p.fails--
		return errors.New("picky")
	}
	return err
}

// §5: snapshots run beside commands: while one hangs in the store, commands are stored, and no second one is begun.
func TestSnapshotBesideCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{SnapshotEvents: 10})
		release := make(chan struct{})
		j.Next(fault.WritePart, fault.HoldBefore(release))
		persistN(t, a, 100, put("x"))
		if len(s.records) != 100 || s.snapshots != 1 {
			t.Errorf("%d records, %d snapshots", len(s.records), s.snapshots)
		}
		close(release)
		synctest.Wait()
		if s.snapshots != 2 || a.Stats().SnapshotSeq != 100 {
			t.Errorf("%d snapshots, the last at seq %d", s.snapshots, a.Stats().SnapshotSeq)
		}
	})
}

// §5: snapshots cover stored events only: what was captured waits until it is stored, and its record ends there.
func TestSnapshotWaitsForStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		a, s := open(t, j, persistent.Options{SnapshotEvents: 3})
		release := make(chan struct{})
		j.Next(fault.Append, fault.HoldBefore(release))
		for range 5 {
			send(t, a, note(1))
		}
		if s.snapshots != 1 || j.Count(fault.WritePart) != 0 {
			t.Errorf("%d captures, %d parts written while nothing is stored", s.snapshots, j.Count(fault.WritePart))
		}
		close(release)
		synctest.Wait()
		if got := a.Stats().SnapshotSeq; got != 3 {
			t.Errorf("snapshot at seq %d, want 3", got)
		}
	})
}

// §5: a snapshot that fails is tried again later, with all that it would have covered; the actor goes on.
func TestSnapshotFails(t *testing.T) {
	for _, how := range []string{"unknown", "full", "panic", "discard"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				s := newShelf()
				sick := &sickShelf{shelf: s, sick: how == "panic"}
				a, err := persistent.Open(t.Context(), j, "shelf", sick, codec{}, quiet(persistent.Options{SnapshotEvents: 10}))
				if err != nil {
					t.Fatal(err)
				}
				switch how {
				case "unknown":
					j.Next(fault.WritePart, fault.Fail())
				case "full":
					j.Next(fault.WritePart, fault.Full())
				case "discard":
					persistN(t, a, 10, note(1))
					j.Next(fault.DiscardMeta, fault.Fail())
				}
				persistN(t, a, 12, note(1))
				sick.sick = false
				if got, want := a.Stats().SnapshotSeq, map[string]uint64{"discard": 20}[how]; got != want {
					t.Errorf("after the failure the snapshot is at seq %d, want %d", got, want)
				}
				time.Sleep(time.Minute)
				persistN(t, a, 1, note(1))
				if got := a.Stats().SnapshotSeq; how != "discard" && got != 12 && got != 13 {
					t.Errorf("a minute later the snapshot is at seq %d", got)
				}
				persistN(t, a, 20, note(1))
				info, err := a.Journal().Info(t.Context())
				if err != nil || info.Low < 10 {
					t.Errorf("in the end Low is %d, %v", info.Low, err)
				}
				if err := a.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// sickShelf is a shelf whose captures panic while they are encoded.
type sickShelf struct {
	*shelf
	sick bool
}

func (p *sickShelf) Capture() iter.Seq[[]byte] {
	chunks := p.shelf.Capture()
	if !p.sick {
		return chunks
	}
	return func(func([]byte) bool) { panic("sick") }
}

// G1, §4: with records that a crash of the machine may lose, no snapshot is ahead of what survives.
func TestSnapshotOfBufferedRecords(t *testing.T) {
	for crashAfter := range 60 {
		synctest.Test(t, func(t *testing.T) {
			store, err := memory.NewStore(memory.Options{})
			if err != nil {
				t.Fatal(err)
			}
			a, s := open(t, store.Open(), persistent.Options{SnapshotEvents: 7, SnapshotBytes: persistent.Never})
			do(t, a, func(c *persistent.Context[event], s *shelf) { c.SetBuffered(true) })
			for range crashAfter {
				persistN(t, a, 1, put("x"))
			}
			snapshot := a.Stats().SnapshotSeq
			store.Crash()
			a.Kill()
			<-a.Done()
			_, s2 := open(t, store.Open(), persistent.Options{})
			end := s2.next - 1
			if end < snapshot || end > uint64(crashAfter) || crashAfter >= 14 && (snapshot < 7 || end < uint64(crashAfter)-14) {
				t.Errorf("crash after %d events: %d survive, the snapshot was at %d", crashAfter, end, snapshot)
			}
			_ = s
		})
	}
}

// G1, §4: where the last record may be lost by a crash of the machine, a snapshot that is due waits for the next one,
// whether that record is stored or under way.
func TestSnapshotWaitsBehindBufferedRecord(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := fault.New(memory.New(), fault.Options{})
			a, s := open(t, j, persistent.Options{SnapshotEvery: time.Minute, AppendTimeout: time.Hour, NoFinalSnapshot: true})
			do(t, a, func(c *persistent.Context[event], s *shelf) { c.SetBuffered(true) })
			release := make(chan struct{})
			if held {
				j.Next(fault.Append, fault.HoldBefore(release))
			}
			outcome := send(t, a, put("x"))
			time.Sleep(2 * time.Minute)
			close(release)
			if err := <-outcome; err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if n := j.Count(fault.WritePart); n != 0 {
				t.Errorf("held %v: %d parts written behind a buffered record", held, n)
			}
			persistN(t, a, 1, put("y"))
			if got := a.Stats().SnapshotSeq; got != 2 {
				t.Errorf("held %v: snapshot at seq %d, want 2", held, got)
			}
			stop(t, a, s)
		})
	}
}

// §5: a behavior without snapshots keeps all events.
func TestNoSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		for round := range 3 {
			b := &plain{}
			a, err := persistent.Open(t.Context(), j, "plain", b, persistent.JSON[int](), quiet(persistent.Options{SnapshotEvents: 2}))
			if err != nil {
				t.Fatal(err)
			}
			if b.sum != 5*round {
				t.Errorf("round %d: sum %d", round, b.sum)
			}
			for range 5 {
				if err := a.Tell(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r, err := j.Open(t.Context(), "plain")
		if err != nil {
			t.Fatal(err)
		}
		events := uint64(0)
		for rec, err := range r.ReadMeta(t.Context(), 1, math.MaxUint64) {
			if err != nil {
				t.Fatal(err)
			}
			events += rec.Count
		}
		if events != 15 {
			t.Errorf("%d events are kept, want 15", events)
		}
	})
}

type plain struct {
	persistent.Base[int, int]
	sum int
}

func (p *plain) Command(a *persistent.Context[int], n int) {
	if err := a.Persist(n); err != nil {
		panic(err)
	}
}

func (p *plain) Apply(_ uint64, _ int64, n int) { p.sum += n }
