package broker

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/queue"
)

// badBodies is a journal some of whose bodies are damaged.
type badBodies struct {
	journal.Journal
	mu      sync.Mutex
	corrupt map[uint64]bool // records whose bodies do not verify
	missing map[uint64]bool // records whose bodies are not there
}

func newBadBodies() *badBodies {
	return &badBodies{Journal: memory.New(), corrupt: map[uint64]bool{}, missing: map[uint64]bool{}}
}

// set damages the record of a message, or repairs it.
func (j *badBodies) set(t *testing.T, b *Broker, in map[uint64]bool, id holdfast.ID, bad bool) {
	t.Helper()
	o := b.open("q")
	at, err := o.locateNow(t.Context(), []queue.Span{{Seq: id.Seq, Count: 1}})
	if err != nil || len(at) != 1 {
		t.Fatalf("message %v lies at %v, %v", id, at, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	in[at[0].Record] = bad
}

type badStream struct {
	journal.Stream
	j *badBodies
}

func (j *badBodies) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	s, err := j.Journal.Acquire(ctx, name)
	if err != nil || name != StreamName("q") {
		return s, err
	}
	return &badStream{s, j}, nil
}

func (s *badStream) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for rec, err := range s.Stream.ReadBodies(ctx, first) {
			if err == nil {
				s.j.mu.Lock()
				corrupt, missing := s.j.corrupt[rec.First], s.j.missing[rec.First]
				s.j.mu.Unlock()
				if missing {
					continue
				}
				if corrupt {
					rec, err = nil, &journal.CorruptError{Stream: StreamName("q"), Seq: rec.First, What: "body does not match its CRC"}
				}
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func numbers(s queue.Stats) string {
	return fmt.Sprintf("%d: %d ready, %d in flight, %d moving, %d parked, %d damaged", s.Depth, s.Ready, s.InFlight, s.Moving, s.Parked, s.Damaged)
}

// wantNumbers waits until nothing goes on any more, and looks at the queue.
func wantNumbers(t *testing.T, b *Broker, want string) holdfast.QueueInfo {
	t.Helper()
	synctest.Wait()
	info := describe(t, b, "q")
	if got := numbers(info.Stats); got != want {
		t.Fatalf("the queue has %s, want %s", got, want)
	}
	return info
}

// G2, §4, §7: a message whose body cannot be read is not handed out and not lost. It is parked and said to be damaged, once in the log, by describe and
// by peek, also after a restart; its receivers get everything else; and it is handed out when it can be read again.
func TestDamagedBody(t *testing.T) {
	for _, kind := range []string{"corrupt", "missing"} {
		for _, credit := range []uint64{1, 100} {
			t.Run(fmt.Sprintf("%s, credit %d", kind, credit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { damagedBody(t, kind, credit) })
			})
		}
	}
}

func damagedBody(t *testing.T, kind string, credit uint64) {
	var log bytes.Buffer
	o := Options{CacheBytes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	j := newBadBodies()
	b := open(t, j, o)
	q := b.Queue("q")
	ids := send(t, q, "a", "bad", "c", "d")
	in := j.corrupt
	if kind == "missing" {
		in = j.missing
	}
	j.set(t, b, in, ids[1], true)

	h, link, opened := receive(t, b, "q", holdfast.ReceiverConfig{}, credit)
	for credit < 3 {
		synctest.Wait()
		credit++
		link.Credit(credit, 1<<40)
	}
	synctest.Wait()
	if got := h.bodies(t); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Fatalf("handed over: %q", got)
	}
	settled(t, func(reply holdfast.Outcomes) { link.Ack(h.spans(), reply) })
	wantDamaged := func(b *Broker) {
		t.Helper()
		info := wantNumbers(t, b, "1: 0 ready, 0 in flight, 0 moving, 1 parked, 1 damaged")
		if !info.Ready || !strings.Contains(info.Damage, "at seq") {
			t.Errorf("ready %v, damage %q", info.Ready, info.Damage)
		}
		if d := b.Damaged(t.Context()); len(d) != 1 || d["q"] != 1 {
			t.Errorf("damaged: %v", d)
		}
		all, err := b.Queue("q").Peek(t.Context(), holdfast.PeekOptions{Bodies: true})
		if err != nil || len(all) != 1 || !all[0].Damaged || all[0].ID != ids[1] || !strings.Contains(all[0].Error, "at seq") {
			t.Errorf("peek: %+v, %v", all, err)
		}
	}
	wantDamaged(b)
	if describe(t, b, "q").Epoch != opened.Epoch {
		t.Error("the queue was stopped")
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines of the log tell of one record:\n%s", n, log.String())
	}
	shut(t, b)

	b = open(t, j, o)
	wantDamaged(b)
	j.set(t, b, in, ids[1], false)
	if n, err := b.Queue("q").Redrive(t.Context(), "", 0); n != 1 || err != nil {
		t.Fatalf("redrive: %d, %v", n, err)
	}
	if info := wantNumbers(t, b, "1: 1 ready, 0 in flight, 0 moving, 0 parked, 0 damaged"); info.Damage != "" {
		t.Errorf("damage: %q", info.Damage)
	}
	h, _, _ = receive(t, b, "q", holdfast.ReceiverConfig{}, 1)
	synctest.Wait()
	if got := h.bodies(t); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("handed over after the repair: %q", got)
	}
	shut(t, b)
}

// §7 Dead-letter move: a message that cannot be read on its way to another queue is parked where it is; those behind it move.
func TestDamagedBodyDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newBadBodies()
		b := open(t, j, Options{CacheBytes: 1})
		if err := b.Queue("q").Create(t.Context(), queue.Config{MaxDeliveries: 1, DeadLetter: "dead"}); err != nil {
			t.Fatal(err)
		}
		ids := send(t, b.Queue("q"), "a", "bad", "c")
		h, link, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 3)
		synctest.Wait()
		j.set(t, b, j.corrupt, ids[1], true)
		settled(t, func(reply holdfast.Outcomes) { link.Nack(h.spans(), 0, reply) })
		wantNumbers(t, b, "1: 0 ready, 0 in flight, 0 moving, 1 parked, 1 damaged")
		if dead := describe(t, b, "dead").Stats; dead.Depth != 2 {
			t.Errorf("%d messages moved", dead.Depth)
		}
		pass(2 * time.Minute) // it is not tried again
		wantNumbers(t, b, "1: 0 ready, 0 in flight, 0 moving, 1 parked, 1 damaged")
		shut(t, b)
	})
}

// §4 Relocated: survivors that cannot be read are parked; the others are stored anew.
func TestDamagedSurvivor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newBadBodies()
		b := open(t, j, Options{CacheBytes: 1})
		ids := send(t, b.Queue("q"), "a", "bad", "c")
		j.set(t, b, j.corrupt, ids[1], true)
		o := b.open("q")
		all := []queue.Span{{Seq: ids[0].Seq, Count: 1}, {Seq: ids[1].Seq, Count: 1}, {Seq: ids[2].Seq, Count: 1}}
		at, err := o.locateNow(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		o.space.relocateNow(t.Context(), &relocation{all, at})
		wantNumbers(t, b, "3: 2 ready, 0 in flight, 0 moving, 1 parked, 1 damaged")
		shut(t, b)
	})
}
