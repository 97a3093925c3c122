package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// The sender behind Queue.Send closes its stream when it is idle, so that the broker forgets its producer, and opens another one.
func TestIdleStreamCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		q := newQueue(n)
		for i := range 3 {
			if _, err := q.Send(t.Context(), msg(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			n.ask(func() {
				if len(n.last) != 1 {
					t.Errorf("%d producers are known", len(n.last))
				}
			})
			time.Sleep(2 * time.Minute)
			n.ask(func() {
				if len(n.last) != 0 {
					t.Errorf("%d producers are remembered", len(n.last))
				}
			})
		}
		if got := fmt.Sprint(n.bodies()); got != "[0 1 2]" {
			t.Errorf("stored %s", got)
		}
		// Nothing of the queue is left running: it need not be closed.
	})
}

// G9, G10: Close ends with its context, and tells of each message what is known.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{limit: 10})
		n.ask(func() { n.tight = true })
		s := newSender(t, n, holdfast.SenderOptions{})
		outcome := map[int]error{}
		send := func(from, to int) {
			for i := from; i < to; i++ {
				if err := s.SendAsync(t.Context(), msg(fmt.Sprint(i)), func(_ holdfast.ID, err error) { outcome[i] = err }); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		send(0, 5)
		n.ask(func() { n.latency = time.Hour }) // no answers
		send(5, 10)
		send(10, 20) // no credit
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		wantErr(t, s.Close(ctx), context.DeadlineExceeded, "close")
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("closed after %v", d)
		}
		synctest.Wait()
		for i := range 20 {
			err := outcome[i]
			switch {
			case i < 5 && err != nil:
				t.Errorf("message %d: %v", i, err)
			case i >= 5 && i < 10:
				wantErr(t, err, holdfast.ErrUnknown, fmt.Sprint("message ", i))
			case i >= 10 && (!errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrUnknown)):
				t.Errorf("message %d: %v", i, err)
			}
		}
		n.ask(func() { n.latency = 0 })
		if got := len(n.bodies()); got != 10 {
			t.Errorf("%d stored", got)
		}
	})
}

// A batch tells of each of its messages.
func TestSendBatchPartly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{limit: 3})
		s := newSender(t, n, holdfast.SenderOptions{NoWait: true})
		ids, err := s.SendBatch(t.Context(), []holdfast.Message{msg("a"), msg("b"), msg("c"), msg("d"), msg("e")})
		var batch *holdfast.BatchError
		if !errors.As(err, &batch) || !errors.Is(err, holdfast.ErrFull) || len(batch.Errs) != 5 || len(ids) != 5 {
			t.Fatalf("%v, %v", ids, err)
		}
		for i, id := range ids {
			if (id.Seq == uint64(i+1)) != (i < 3) || (batch.Errs[i] == nil) != (i < 3) {
				t.Errorf("message %d: %v, %v", i, id, batch.Errs[i])
			}
		}
		if want := "2 of 5 messages: "; !strings.HasPrefix(batch.Error(), want) {
			t.Errorf("%v", batch)
		}
	})
}

// G4: the window counts bytes too; a message larger than all of it goes alone, and is not passed by for ever.
func TestWindowInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		s := newSender(t, n, holdfast.SenderOptions{MaxInFlightBytes: 1000})
		most := 0
		for i := range 200 {
			size := 100
			if i%50 == 49 {
				size = 5000
			}
			if err := s.SendAsync(t.Context(), holdfast.Message{Body: make([]byte, size)}, func(_ holdfast.ID, err error) {
				if err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if st := s.Stats(); size == 100 {
				most = max(most, st.InFlightBytes)
			} else if st.InFlight != 1 {
				t.Errorf("a large message is in flight with %d others", st.InFlight-1)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most > 1000 || most < 800 || len(n.bodies()) != 200 {
			t.Errorf("up to %d bytes in flight, %d stored", most, len(n.bodies()))
		}
	})
}

// A buffered queue may lose what it had acknowledged, when its machine crashes. Its senders go on, and what they had in flight is stored
// once.
func TestBrokerLosesItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		s := newSender(t, n, holdfast.SenderOptions{})
		for i := range 10 {
			if _, err := s.Send(t.Context(), msg(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		n.ask(func() {
			n.msgs, n.live = n.msgs[:6], 6
			for p := range n.last {
				n.last[p] = 6
			}
		})
		n.breakAll(errCable)
		for i := 10; i < 13; i++ {
			if _, err := s.Send(t.Context(), msg(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(n.bodies()); got != "[0 1 2 3 4 5 10 11 12]" {
			t.Errorf("stored %s", got)
		}
	})
}

// breaking is a link whose streams of senders break in the middle of a hand-over, as they are told to.
type breaking struct {
	holdfast.Link
	how string
}

type breakingSender struct {
	holdfast.SenderLink
	l  *breaking
	ev holdfast.SenderEvents
}

func (l *breaking) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	link, opened, err := l.Link.OpenSender(ctx, name, c, ev)
	return breakingSender{link, l, ev}, opened, err
}

func (s breakingSender) Send(first uint64, frame []byte) error {
	how := s.l.how
	if s.l.how = ""; how == "" {
		return s.SenderLink.Send(first, frame)
	}
	err := errors.New("it breaks")
	s.SenderLink.Close(false)
	if how == "told" {
		s.ev.Broken(err)
		synctest.Wait() // the writer has seen it
	}
	return err
}

// G9, G10: what a caller's goroutine hands over when the stream breaks is sent again on the next one, though nothing else happens.
func TestBreaksUnderACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &breaking{Link: newNaive(t, nil)}
		s := newSender(t, l, holdfast.SenderOptions{})
		for _, how := range []string{"", "told", "failed", ""} {
			synctest.Wait() // the writer rests
			l.how = how
			sent := make(chan error, 1)
			if err := s.SendAsync(t.Context(), msg("x"), func(_ holdfast.ID, err error) { sent <- err }); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-sent:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Errorf("%q: it is not sent again", how)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
