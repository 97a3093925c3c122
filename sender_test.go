package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// Send returns once the message is stored, with its id; ids follow the order.
func TestSendReturnsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		q := newQueue(n)
		defer closeQueue(t, q)
		for i := range 3 {
			begin := time.Now()
			id, err := q.Send(t.Context(), msg(fmt.Sprint(i)))
			if want := (holdfast.ID{Stream: n.uid, Seq: uint64(i + 1)}); err != nil || id != want {
				t.Fatalf("send %d: %v, %v; want %v", i, id, err, want)
			}
			if time.Since(begin) < time.Millisecond {
				t.Fatalf("send %d returned after %v, before it was stored", i, time.Since(begin))
			}
		}
	})
}

// Design §11: frames are formed from what is waiting. A thousand waiting senders share few of them.
func TestSendersShareFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		q := newQueue(n)
		defer closeQueue(t, q)
		var wg sync.WaitGroup
		ids := make([]holdfast.ID, 1000)
		for i := range ids {
			wg.Go(func() {
				for k := range 10 {
					id, err := q.Send(t.Context(), msg(fmt.Sprintf("%d/%d", i, k)))
					if err != nil {
						t.Errorf("sender %d: %v", i, err)
					}
					if id.Seq <= ids[i].Seq {
						t.Errorf("G6: sender %d got %v after %v", i, id, ids[i])
					}
					ids[i] = id
				}
			})
		}
		wg.Wait()
		if st := q.SenderStats(); st.Stored != 10_000 || st.Frames > 500 {
			t.Errorf("%d stored in %d frames", st.Stored, st.Frames)
		}
		// G6: what each sent is in its order, each once.
		seen := map[string]int{}
		for _, b := range n.bodies() {
			who, k, _ := strings.Cut(b, "/")
			if k != fmt.Sprint(seen[who]) {
				t.Fatalf("G6: %s comes after %d of its own", b, seen[who])
			}
			seen[who]++
		}
	})
}

// The asynchronous form blocks only when the window is full, and calls done once a message, in order.
func TestSendAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		s := newSender(t, n, holdfast.SenderOptions{MaxInFlight: 100})
		var mu sync.Mutex
		var done []uint64
		for i := range 1000 {
			if err := s.SendAsync(t.Context(), msg(fmt.Sprint(i)), func(id holdfast.ID, err error) {
				if err != nil {
					t.Errorf("message %d: %v", i, err)
				}
				mu.Lock()
				done = append(done, id.Seq)
				mu.Unlock()
			}); err != nil {
				t.Fatal(err)
			}
			if st := s.Stats(); st.InFlight > 100 {
				t.Fatalf("G4: %d in flight", st.InFlight)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(done) != 1000 || !slices.IsSorted(done) || done[0] != 1 {
			t.Fatalf("%d outcomes, sorted %v", len(done), slices.IsSorted(done))
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, s.SendAsync(t.Context(), msg("late"), func(holdfast.ID, error) { t.Error("called") }), holdfast.ErrClosed, "send after Close")
	})
}

// G10: a send given up before its hand-over uses no seq and is not stored; after it, it is unknown, and stored once.
func TestThreeOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{limit: 5, tight: true})
		q := newQueue(n)
		for i := range 5 {
			if _, err := q.Send(t.Context(), msg(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		// The queue is full: there is no credit, so the link never has the message.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Send(ctx, msg("given up"))
		wantErr(t, err, context.DeadlineExceeded, "send to a full queue")
		if errors.Is(err, holdfast.ErrUnknown) {
			t.Fatalf("G10: not handed over, but %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.Send(t.Context(), msg("patient")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		n.ask(func() { n.limit = 100; n.roomy() })
		wg.Wait()

		// The answer takes longer than the sender waits.
		n.ask(func() { n.latency = time.Minute })
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = q.Send(ctx, msg("unknown"))
		wantErr(t, err, holdfast.ErrUnknown, "send without an answer")
		n.ask(func() { n.latency = 0 })
		if err := q.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(n.bodies(), " "); got != "0 1 2 3 4 patient unknown" {
			t.Fatalf("stored: %s", got)
		}
	})
}

// G9, G10: the end of a context that many callers share ends the waits of all of them, and of no other, wherever their messages are.
func TestSharedContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{limit: 151, tight: true})
		q := newQueue(n)
		if _, err := q.Send(t.Context(), msg("first")); err != nil {
			t.Fatal(err)
		}
		n.ask(func() { n.latency = time.Minute })
		shared, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var unknown, notStored, stored int
		var mu sync.Mutex
		send := func(ctx context.Context, i int) {
			wg.Go(func() {
				_, err := q.Send(ctx, msg(fmt.Sprint(i)))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, holdfast.ErrUnknown):
					unknown++
				case errors.Is(err, context.DeadlineExceeded):
					notStored++
				case err == nil:
					stored++
				default:
					t.Error(err)
				}
				if d, ok := ctx.Deadline(); ok && i < 200 && (err == nil || time.Now() != d) {
					t.Errorf("send %d ended with %v, %v after its context", i, err, time.Since(d))
				}
			})
			synctest.Wait()
		}
		for i := range 200 { // some are handed over at once, the others wait for answers to those
			if i%5 == 4 {
				send(t.Context(), i)
			} else {
				send(shared, i)
			}
		}
		time.Sleep(4 * time.Second)
		send(shared, 200) // ended before it began
		mu.Lock()
		handedOver := unknown
		if unknown == 0 || notStored < 41 || unknown+notStored != 161 || stored != 0 {
			t.Errorf("%d unknown, %d not stored, %d stored", unknown, notStored, stored)
		}
		mu.Unlock()
		n.ask(func() { n.limit = 1000; n.roomy() })
		wg.Wait()
		if stored != 40 || len(n.bodies()) != 41+handedOver {
			t.Errorf("%d of the patient are stored, %d in all", stored, len(n.bodies()))
		}
		closeQueue(t, q)
	})
}

// A batch of which a part was withdrawn goes on without it.
func TestWithdrawFromTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{limit: 1, tight: true})
		q := newQueue(n)
		defer closeQueue(t, q)
		if _, err := q.Send(t.Context(), msg("first")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		ids := make([]holdfast.ID, 300)
		for i := range ids {
			wg.Go(func() {
				ctx := t.Context()
				if i%3 == 1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				id, err := q.Send(ctx, msg(fmt.Sprint(i)))
				if (i%3 == 1) != (err != nil) || errors.Is(err, holdfast.ErrUnknown) {
					t.Errorf("send %d: %v", i, err)
				}
				ids[i] = id
			})
			synctest.Wait() // so that they wait in order
		}
		time.Sleep(2 * time.Second)
		// Room comes little by little, so that frames are split.
		for room := 1; room < 250; room += 7 {
			n.ask(func() { n.limit = room; n.roomy() })
			synctest.Wait()
		}
		wg.Wait()
		stored := n.bodies()
		if len(stored) != 201 {
			t.Fatalf("%d stored", len(stored))
		}
		for i, id := range ids {
			if i%3 == 1 {
				continue
			}
			if id.Seq == 0 || stored[id.Seq-1] != fmt.Sprint(i) {
				t.Fatalf("message %d has id %v, under which %q is stored", i, id, stored[id.Seq-1])
			}
		}
	})
}

// G3, G6: with breaks all the time, what was sent is stored once and in order.
func TestResendAfterBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: 3 * time.Millisecond})
		s := newSender(t, n, holdfast.SenderOptions{MaxInFlight: 64})
		stop := make(chan struct{})
		var breaker sync.WaitGroup
		breaker.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(17 * time.Millisecond):
					n.breakAll(errors.New("cable pulled"))
				}
			}
		})
		const total = 3000
		for i := range total {
			if err := s.SendAsync(t.Context(), msg(fmt.Sprint(i)), func(_ holdfast.ID, err error) {
				if err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if i%8 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(stop)
		breaker.Wait()
		stored := n.bodies()
		for i, b := range stored {
			if b != fmt.Sprint(i) {
				t.Fatalf("G3, G6: %q is stored at place %d of %d", b, i, len(stored))
			}
		}
		if st := s.Stats(); len(stored) != total || st.Streams < 10 || st.Resent == 0 {
			t.Fatalf("%d stored; %+v", len(stored), st)
		}
	})
}

// G10: a refusal fails exactly the messages that it concerns; those behind them are sent and stored in order.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond, limit: 1000})
		s := newSender(t, n, holdfast.SenderOptions{NoWait: true})
		outcome := make([]error, 3000)
		send := func(from, to int) {
			for i := from; i < to; i++ {
				if err := s.SendAsync(t.Context(), msg(fmt.Sprint(i)), func(id holdfast.ID, err error) {
					outcome[i] = err
					if (id.Seq == 0) != (err != nil) {
						t.Errorf("message %d: id %v, %v", i, id, err)
					}
				}); err != nil {
					t.Fatal(err)
				}
				if i%50 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}
		send(0, 1500)
		n.ask(func() { n.limit = 2000 })
		send(1500, 2500)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.ask(func() { n.limit = 10_000 })
		send(2500, 3000)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []string
		failed := 0
		for i, err := range outcome {
			if err == nil {
				want = append(want, fmt.Sprint(i))
				continue
			}
			failed++
			wantErr(t, err, queue.ErrFull, fmt.Sprintf("message %d", i))
			if errors.Is(err, holdfast.ErrUnknown) {
				t.Fatalf("G10: message %d: %v", i, err)
			}
		}
		if got := n.bodies(); !slices.Equal(got, want) {
			t.Fatalf("%d stored, %d told to be", len(got), len(want))
		}
		if failed == 0 || failed > 1500 {
			t.Fatalf("%d failed", failed)
		}
	})
}

// A full queue has its sender wait, say so after a second, and go on (G4). Nothing is lost or reordered by the wait.
func TestWaitsAndSaysSo(t *testing.T) {
	for _, tight := range []bool{false, true} {
		t.Run(fmt.Sprintf("tight=%v", tight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNaive(t, &naiveOptions{limit: 100, tight: tight})
				var told []string
				s := newSender(t, n, holdfast.SenderOptions{MaxInFlight: 50, OnWait: func(waits bool, reason string) {
					told = append(told, fmt.Sprintf("%v after %v", waits, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))))
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				sent := 0
				for i := 0; ; i++ {
					if err := s.SendAsync(ctx, msg(fmt.Sprint(i)), func(_ holdfast.ID, err error) {
						if err != nil {
							t.Error(err)
						}
					}); err != nil {
						wantErr(t, err, context.DeadlineExceeded, "send into a full window")
						break
					}
					sent++
				}
				if sent != 150 {
					t.Errorf("G4: %d accepted from the caller, with 100 in the queue and a window of 50", sent)
				}
				if st := s.Stats(); !st.Waits || st.InFlight != 50 {
					t.Errorf("%+v", st)
				}
				n.ask(func() { n.limit = 1000; n.roomy() })
				if err := s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(n.bodies()) != 150 || len(told) != 2 || told[0] != "true after 1s" || told[1] != "false after 10s" {
					t.Errorf("%d stored, told %v", len(n.bodies()), told)
				}
			})
		})
	}
}

// G11: bad input is refused with the field and the limit, before it costs anything.
func TestSendBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{maxBody: 10})
		q := newQueue(n)
		defer closeQueue(t, q)
		for _, m := range []holdfast.Message{msg("longer than ten"), {Priority: 10}, {Delay: -1}, {Key: strings.Repeat("k", 300)}} {
			_, err := q.Send(t.Context(), m)
			var field *message.FieldError
			if !errors.As(err, &field) || errors.Is(err, holdfast.ErrUnknown) {
				t.Errorf("%v: %v", m, err)
			}
		}
		if _, err := q.Send(t.Context(), msg("ten bytes!")); err != nil {
			t.Error(err)
		}
		if _, err := q.NewSender(holdfast.SenderOptions{MaxInFlight: -1, MaxInFlightBytes: -1, ProducerID: strings.Repeat("p", 257)}); err == nil ||
			strings.Count(err.Error(), "limit") != 3 {
			t.Errorf("all faults at once: %v", err)
		}
	})
}
