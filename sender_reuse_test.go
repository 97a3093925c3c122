package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// lender is a link that says that frames are lent. It has each until it is answered on its stream, or for good if the stream breaks before: a connection
// that is going down may still be writing it.
type lender struct {
	*naive
	t testing.TB

	mu     sync.Mutex
	frames map[*byte]bool // the memory of all frames so far
	sent   int
	broken []lentFrame
}

type lentFrame struct {
	first       uint64
	frame, copy []byte
}

func (f *lentFrame) check(t testing.TB) {
	if !bytes.Equal(f.frame, f.copy) {
		t.Errorf("the frame from message %d on was changed while the link had it", f.first)
	}
}

func (l *lender) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	s := &lenderStream{l: l, SenderEvents: ev}
	inner, o, err := l.naive.OpenSender(ctx, name, c, s)
	s.SenderLink = inner
	o.Lent = true
	return s, o, err
}

type lenderStream struct {
	holdfast.SenderLink
	holdfast.SenderEvents
	l    *lender
	lent []lentFrame // under l.mu
}

func (s *lenderStream) Send(first uint64, frame []byte) error {
	f := lentFrame{first, frame, slices.Clone(frame)}
	s.l.mu.Lock()
	s.l.frames[&frame[0]] = true
	s.l.sent++
	s.lent = append(s.lent, f)
	s.l.mu.Unlock()
	return s.SenderLink.Send(first, f.copy)
}

func (s *lenderStream) Accepted(a holdfast.Accepted) {
	s.l.mu.Lock()
	for len(s.lent) > 0 && s.lent[0].first <= a.UpTo {
		s.lent[0].check(s.l.t)
		s.lent = s.lent[1:]
	}
	s.l.mu.Unlock()
	s.SenderEvents.Accepted(a)
}

func (s *lenderStream) Broken(err error) {
	s.l.mu.Lock()
	s.l.broken = append(s.l.broken, s.lent...)
	s.lent = nil
	s.l.mu.Unlock()
	s.SenderEvents.Broken(err)
}

// A link that lends frames gets memory again that it has given back, and nothing changes in a frame that it has: not before the answer, and not in one that
// was sent again by another stream.
func TestLentFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lender{naive: newNaive(t, &naiveOptions{latency: time.Millisecond}), t: t, frames: map[*byte]bool{}}
		s := newSender(t, l, holdfast.SenderOptions{MaxInFlight: 500})
		pad := bytes.Repeat([]byte("x"), 1000)
		const messages = 50_000
		for i := range messages {
			if i%10_000 == 5_000 {
				l.breakAll(errors.New("broken by the test"))
			}
			if err := s.SendAsync(t.Context(), msg(fmt.Sprintf("%d %s", i, pad)), func(_ holdfast.ID, err error) {
				if err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := l.bodies()
		if len(got) != messages {
			t.Fatalf("G1, G3: %d messages stored of %d", len(got), messages)
		}
		for i, b := range got {
			if want := fmt.Sprintf("%d %s", i, pad); b != want {
				t.Fatalf("message %d is %.20q", i, b)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, f := range l.broken {
			f.check(t)
		}
		if len(l.broken) == 0 {
			t.Error("no stream broke with frames unanswered")
		}
		if len(l.frames) > l.sent*3/4 {
			t.Errorf("%d frames in %d places", l.sent, len(l.frames))
		}
	})
}
