package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// history is what a random run told its users.
type history struct {
	mu      sync.Mutex
	sent    map[string]error // outcome by body; nil is stored
	handled map[string]int   // handlers that returned nil
	ids     map[string]holdfast.ID
}

func (h *history) outcome(body string, id holdfast.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.sent[body]; ok {
		panic("two outcomes of " + body)
	}
	h.sent[body] = err
	if id.Seq != 0 {
		h.ids[body] = id
	}
}

func (h *history) stored() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, err := range h.sent {
		if err == nil {
			n++
		}
	}
	return n
}

// send sends messages of one sender, by both forms, with contexts that end now and then.
func (h *history) send(t testing.TB, link holdfast.Link, who int, seed uint64, count int) {
	rng := rand.New(rand.NewPCG(seed, uint64(who)))
	s := newSender(t, link, holdfast.SenderOptions{MaxInFlight: 1 + rng.IntN(50), NoWait: who == 2})
	for i := range count {
		body := fmt.Sprintf("%d/%d", who, i)
		m := msg(body)
		if rng.IntN(3) == 0 {
			m.Headers = []holdfast.Header{{Name: "n", Value: body}}
		}
		if rng.IntN(4) > 0 {
			if err := s.SendAsync(context.Background(), m, func(id holdfast.ID, err error) { h.outcome(body, id, err) }); err != nil {
				t.Errorf("send %s: %v", body, err)
			}
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(200))*time.Millisecond)
			id, err := s.Send(ctx, m)
			cancel()
			h.outcome(body, id, err)
		}
		if rng.IntN(10) == 0 {
			<-time.After(time.Duration(rng.IntN(40)) * time.Millisecond)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// consume handles messages until ctx ends; handlers are slow, fail and panic now and then.
func (h *history) consume(ctx context.Context, t testing.TB, link holdfast.Link, who int, seed uint64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, uint64(100+who)))
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	err := newQueue(link).Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
		if roll(3) == 0 {
			select {
			case <-time.After(time.Duration(roll(100)) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch roll(30) {
		case 0:
			return errors.New("no")
		case 1:
			panic("oh")
		case 2:
			return holdfast.GiveBack(nil)
		case 3:
			return holdfast.RetryAfter(time.Second, nil)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.handled[string(d.Body)]++
		return nil
	}, holdfast.ConsumeOptions{Workers: 1 + roll(4), Prefetch: roll(3) * 20, Visibility: 0})
	if err != nil {
		t.Errorf("consume: %v", err)
	}
}

// rounds is how many seeds random tests run.
func rounds(few, many int) int {
	if os.Getenv("HOLDFAST_SOAK") != "" {
		return many
	}
	return few
}

// Random faults on the way, by seed, over the naive broker: what was told to be stored is stored, once (G1, G3), what was told not to
// be is not (G10), each sender's messages are in order (G6), every message is handled, and all of it comes to an end (G9).
func TestRandomFaults(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for k := range rounds(20, 2000) {
		seed := base + uint64(k)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				n := newNaive(t, &naiveOptions{
					latency: time.Duration(rng.IntN(5)) * time.Millisecond, retryDelay: 100 * time.Millisecond,
					limit: rng.IntN(2) * 200, tight: rng.IntN(2) == 0,
				})
				f := newFaulty(n, seed, 50*time.Millisecond+time.Duration(rng.IntN(1000))*time.Millisecond, time.Duration(1+rng.IntN(20))*time.Millisecond)
				h := &history{sent: map[string]error{}, handled: map[string]int{}, ids: map[string]holdfast.ID{}}
				ctx, cancel := context.WithCancel(context.Background())
				var senders, consumers sync.WaitGroup
				for who := range 3 {
					senders.Go(func() { h.send(t, f, who, seed, 300) })
				}
				for who := range 2 {
					consumers.Go(func() { h.consume(ctx, t, f, who, seed) })
				}
				senders.Wait()
				for deadline := time.Now().Add(time.Hour); len(n.bodies()) > 0; {
					if time.Now().After(deadline) {
						t.Fatalf("G2: never handled: %v", n.bodies())
					}
					<-time.After(time.Second)
				}
				f.heal()
				cancel()
				consumers.Wait()
				h.judge(t, n)
				<-time.After(time.Minute) // for stragglers on the way
			})
		})
	}
}

// judge compares what users were told with what the broker had.
func (h *history) judge(t testing.TB, n *naive) {
	var all []string
	n.ask(func() { all = append(all, n.history...) })
	at := map[string]uint64{}
	last := map[string]int{}
	for i, body := range all {
		if at[body] != 0 {
			t.Errorf("G3: %s is stored twice, as %d and %d", body, at[body], i+1)
		}
		at[body] = uint64(i + 1)
		who, num, _ := strings.Cut(body, "/")
		var k int
		fmt.Sscan(num, &k)
		if k < last[who] {
			t.Errorf("G6: %s comes after %d", body, last[who])
		}
		last[who] = k
		if h.handled[body] == 0 {
			t.Errorf("G2: %s is gone and was never handled", body)
		}
	}
	unknown, refused := 0, 0
	for body, err := range h.sent {
		switch {
		case err == nil && at[body] == 0:
			t.Errorf("G1: %s was told to be stored", body)
		case err != nil && errors.Is(err, holdfast.ErrUnknown):
			unknown++
		case err != nil && at[body] != 0:
			t.Errorf("G10: %s is stored as %d, and was told not to be: %v", body, at[body], err)
		case err != nil:
			refused++
		}
		if id := h.ids[body]; id.Seq != 0 && id.Seq != at[body] {
			t.Errorf("%s has id %v and is stored as %d", body, id, at[body])
		}
	}
	if len(h.sent) != 900 {
		t.Errorf("%d outcomes of 900", len(h.sent))
	}
	t.Logf("%d stored, %d refused, %d unknown", h.stored(), refused, unknown)
}
