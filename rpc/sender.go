package rpc

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

const (
	kindSender   = "sender"
	kindReceiver = "receiver"
	kindDelivery = "delivery"
)

// phase is where a stream is in its life. It only goes forward.
type phase uint32

const (
	opening phase = iota // asked for, and not answered
	open
	closed // by either side: the link is told nothing more, the client neither
)

// life is what all kinds of streams have.
type life struct {
	c     *dataConn
	id    uint32
	phase atomic.Uint32

	mu     sync.Mutex
	cancel context.CancelFunc
	// early are events that came before the answer to the opening was queued, which goes first.
	early []func()
}

func (l *life) is(p phase) bool { return phase(l.phase.Load()) == p }

// event runs f, which tells the client something, now if the stream is open, after the answer if it is still being
// opened, and never once it is closed.
func (l *life) event(f func()) {
	if l.is(open) {
		f()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.is(open):
		f()
	case l.is(opening):
		l.early = append(l.early, f)
	}
}

// opened makes the stream open, and answer tells the client. It returns false if the stream was closed meanwhile.
func (l *life) opened(answer func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.is(closed) {
		return false
	}
	answer()
	for _, f := range l.early {
		f()
	}
	l.early = nil
	l.phase.Store(uint32(open))
	return true
}

// close reports the phase that it ends.
func (l *life) close() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := phase(l.phase.Swap(uint32(closed)))
	l.early = nil
	if l.cancel != nil {
		l.cancel()
	}
	return was
}

// broken ends the stream from the link's side.
func (l *life) broken(err error) {
	if l.close() != closed {
		l.c.breakStream(l.id, err)
	}
}

// ready reports whether a frame of the client can be passed on: not if the stream is closed, and it is an error if the
// client did not wait for it to be open.
func (l *life) ready(h wire.Header) (bool, error) {
	if l.is(open) {
		return true, nil
	}
	l.mu.Lock() // the answer may be on its way already, and the stream not yet marked
	defer l.mu.Unlock()
	if l.is(opening) {
		return false, outOfSequence(h, "comes before the stream is open")
	}
	return l.is(open), nil
}

// start prepares the context of the opening.
func (l *life) start(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.cancel = cancel
	if l.is(closed) {
		cancel()
	}
	l.mu.Unlock()
	return ctx, cancel
}

// senderStream is a sender's stream: the events of the link on one side, the frames of the client on the other.
type senderStream struct {
	life
	link holdfast.SenderLink // set before the stream is open
}

func (c *dataConn) openSender(ctx context.Context, id uint32, m wire.OpenSender) error {
	st := &senderStream{life: life{c: c, id: id}}
	return c.open(ctx, id, access.Send, m.Queue, st, func(ctx context.Context) error {
		ctx, cancel := st.start(ctx)
		defer cancel()
		link, o, err := c.link.OpenSender(ctx, m.Queue, holdfast.SenderConfig{Producer: m.Producer, NoWait: m.NoWait, Internal: c.peer}, st)
		if err == nil {
			if err = checkEpoch(m.Queue, m.Seen, wire.Seen{StreamUID: o.StreamUID, Epoch: o.Epoch}); err != nil {
				link.Close(false)
			}
		}
		if err != nil {
			if st.life.close() == closed {
				return nil
			}
			return err
		}
		st.link = link
		maxFrame := min(o.MaxFrameBytes, c.maxSend)
		ok := st.opened(func() {
			c.t.End(wire.AppendSenderOpened(c.t.Begin(), id, &wire.SenderOpened{
				StreamUID: o.StreamUID, Epoch: o.Epoch, Resume: o.Resume, Credit: wire.Credit(o.Credit),
				MaxBody: uint32(o.MaxBody), MaxFrame: uint32(maxFrame), Buffered: o.Buffered,
			}))
		})
		if !ok {
			link.Close(false)
		}
		return nil
	})
}

func (st *senderStream) kind() string { return kindSender }

func (st *senderStream) frame(h wire.Header, payload []byte) error {
	if h.Type != wire.TypeSend {
		return outOfSequence(h, "is not one of a sender's stream")
	}
	if ok, err := st.ready(h); !ok {
		return err
	}
	first, frame, err := wire.DecodeSend(payload)
	if err != nil {
		return err
	}
	// What a link refuses here, it tells by Broken as well.
	_ = st.link.Send(first, frame)
	return nil
}

func (st *senderStream) close(clean bool) {
	if st.life.close() == open {
		st.link.Close(clean)
	}
}

// Accepted implements holdfast.SenderEvents.
func (st *senderStream) Accepted(a holdfast.Accepted) {
	if !st.is(open) {
		return // nothing was sent before it, and nobody asks behind it
	}
	t := st.c.t
	t.End(wire.AppendAccepted(t.Begin(), st.id, &wire.Accepted{
		UpTo: a.UpTo, First: a.First, Count: a.Count, Duplicates: a.Duplicates, Credit: wire.Credit(a.Credit), Suppressed: a.Suppressed,
	}))
}

// Refused implements holdfast.SenderEvents.
func (st *senderStream) Refused(resume uint64, err error) {
	st.event(func() {
		t := st.c.t
		t.End(wire.AppendRefused(t.Begin(), st.id, resume, status.FromError(err)))
	})
}

// Waits implements holdfast.SenderEvents.
func (st *senderStream) Waits(waits bool, reason string) {
	st.event(func() {
		t := st.c.t
		t.End(wire.AppendWaits(t.Begin(), st.id, waits, reason))
	})
}

// Broken implements holdfast.SenderEvents.
func (st *senderStream) Broken(err error) { st.broken(err) }
