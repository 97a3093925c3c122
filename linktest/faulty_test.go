package linktest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a link whose senders' streams accept each frame as it comes.
type echo struct {
	holdfast.Link
	closed atomic.Int64
}

type echoSender struct {
	e  *echo
	ev holdfast.SenderEvents
}

func (e *echo) OpenSender(_ context.Context, _ string, _ holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	return &echoSender{e, ev}, holdfast.SenderOpened{}, nil
}

func (s *echoSender) Send(first uint64, _ []byte) error {
	s.ev.Accepted(holdfast.Accepted{UpTo: first})
	return nil
}
func (s *echoSender) Close(bool) { s.e.closed.Add(1) }

type heard struct {
	upTo   []uint64
	broken error
}

func (h *heard) Accepted(a holdfast.Accepted) { h.upTo = append(h.upTo, a.UpTo) }
func (h *heard) Refused(uint64, error)        {}
func (h *heard) Waits(bool, string)           {}
func (h *heard) Broken(err error)             { h.broken = err }

// A faulty link is late and breaks, but keeps the order of each stream; and it ends what is under it.
func TestFaulty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = 100
		e := new(echo)
		f := NewFaulty(e, 1, 200*time.Millisecond, 5*time.Millisecond)
		opened, failed, cut := 0, 0, 0
		for range 50 {
			h := new(heard)
			link, _, err := f.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, h)
			if err != nil {
				failed++
				continue
			}
			opened++
			for i := range uint64(frames) {
				if err := link.Send(i+1, nil); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.IsSorted(h.upTo) {
				t.Fatal("out of order")
			}
			if !errors.Is(h.broken, errFault) {
				t.Fatalf("ended with %v", h.broken)
			}
			if len(h.upTo) < frames {
				cut++
			}
		}
		time.Sleep(time.Minute) // for the closing of a stream that failed at once
		synctest.Wait()
		if failed < 5 || cut < 5 || cut == opened || int(e.closed.Load()) < opened {
			t.Errorf("of 50 streams %d did not open, %d of the others lost something, %d were closed", failed, cut, e.closed.Load())
		}
	})
}
