package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/linktest"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// G1, G2, G3, G6, G9, G10: senders and consumers over this broker, with random faults between them.
func TestRandomFaultsOnTheWay(t *testing.T) {
	base, rounds := uint64(time.Now().UnixNano()), 10
	if os.Getenv("HOLDFAST_SOAK") != "" {
		rounds = 1000
	}
	for k := range rounds {
		seed := base + uint64(k)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				b := open(t, memory.New(), Options{})
				cfg := queue.Config{RetryFirst: 100 * time.Millisecond, RetryCap: time.Second, MaxMessages: rng.Int64N(2) * 200}
				if err := b.Admin().Create(context.Background(), "run", cfg); err != nil {
					t.Fatal(err)
				}
				linktest.Run(t, b, linktest.Options{
					Seed: seed, Life: 50*time.Millisecond + time.Duration(rng.IntN(1000))*time.Millisecond,
					Lag: time.Duration(1+rng.IntN(20)) * time.Millisecond,
				})
				<-time.After(time.Minute) // for stragglers on the way
				shut(t, b)
			})
		})
	}
}

// oneSender takes the events of a sender's stream.
type oneSender struct {
	accepted chan holdfast.Accepted
	broken   chan error
}

func (s *oneSender) Accepted(a holdfast.Accepted) { s.accepted <- a }
func (s *oneSender) Refused(resume uint64, err error) {
	panic(fmt.Sprint("refused from ", resume, ": ", err))
}
func (s *oneSender) Waits(bool, string) {}
func (s *oneSender) Broken(err error)   { s.broken <- err }

// G3: what an earlier stream of a producer still brings is not stored, even after the producer has closed another one cleanly and is
// forgotten.
func TestEarlierStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		var fb message.Builder
		fb.Add(&holdfast.Message{Body: []byte("once")})
		frame := fb.Finish()
		cfg := holdfast.SenderConfig{Producer: queue.Producer{ID: "p", Incarnation: "1"}}
		var ends [2]*oneSender
		var links [2]holdfast.SenderLink
		for i := range links {
			ends[i] = &oneSender{make(chan holdfast.Accepted, 1), make(chan error, 1)}
			var err error
			if links[i], _, err = b.OpenSender(t.Context(), "q", cfg, ends[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-ends[0].broken; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("the earlier stream ended with %v", err)
		}
		if err := links[1].Send(1, frame); err != nil {
			t.Fatal(err)
		}
		<-ends[1].accepted
		links[1].Close(true)
		synctest.Wait()
		_ = links[0].Send(1, frame) // it was on its way when its connection was lost
		synctest.Wait()
		if d := describe(t, b, "q"); d.Stats.Depth != 1 {
			t.Errorf("stored %d times", d.Stats.Depth)
		}
		shut(t, b)
	})
}
