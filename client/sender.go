package client

import (
	"context"
	"fmt"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// senderStream is a sender's stream at the client.
type senderStream struct {
	*answer
	cn *conn
	id uint32
	ev holdfast.SenderEvents

	o holdfast.SenderOpened // set before the stream is open
}

// OpenSender implements holdfast.Link.
func (c *Client) OpenSender(ctx context.Context, name string, cfg holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	var st *senderStream
	err := queue.ValidName(name)
	if err == nil {
		err = validProducer(cfg.Producer)
	}
	if err == nil {
		_, err = c.open(ctx, name, func(cn *conn, id uint32) (stream, *answer) {
			st = &senderStream{answer: newAnswer(), cn: cn, id: id, ev: ev}
			return st, st.answer
		}, func(b []byte, id uint32) []byte {
			return wire.AppendOpenSender(b, id, &wire.OpenSender{Queue: name, Producer: cfg.Producer, NoWait: cfg.NoWait, Seen: c.lastSeen(name)})
		})
	}
	if err != nil {
		return nil, holdfast.SenderOpened{}, doing(err, "open sender to queue %q", name)
	}
	c.saw(name, wire.Seen{StreamUID: st.o.StreamUID, Epoch: st.o.Epoch})
	return st, st.o, nil
}

// validProducer refuses what would break the connection instead of the stream.
func validProducer(p queue.Producer) error {
	for _, f := range []struct{ field, v string }{{"producer id", p.ID}, {"incarnation", p.Incarnation}} {
		if len(f.v) > 256 {
			return &message.FieldError{Field: f.field, Fault: fmt.Sprintf("has %d bytes", len(f.v)), Limit: "256 bytes"}
		}
	}
	return nil
}

// Send implements holdfast.SenderLink.
func (st *senderStream) Send(first uint64, frame []byte) error {
	if st.over.Load() {
		return fmt.Errorf("send: %w", st.cn.gone())
	}
	if len(frame) > st.o.MaxFrameBytes {
		err := fmt.Errorf("send: %w", &message.FieldError{Field: "frame", Fault: fmt.Sprintf("has %d bytes", len(frame)), Limit: fmt.Sprintf("%d bytes", st.o.MaxFrameBytes)})
		st.cn.close(st.id, false)
		// Not from here: the caller may hold what its events need.
		go st.broken(err)
		return err
	}
	t := st.cn.t
	t.EndBulk(wire.AppendSendHeader(t.Begin(), st.id, first, len(frame)), [][]byte{frame}, 0, 0, 0)
	return nil
}

// Close implements holdfast.SenderLink.
func (st *senderStream) Close(clean bool) {
	st.abandon()
	st.cn.close(st.id, clean)
}

func (st *senderStream) broken(err error) { st.end(err, st.ev.Broken) }

func (st *senderStream) frame(h wire.Header, payload []byte) error {
	if h.Type == wire.TypeSenderOpened {
		m, err := wire.DecodeSenderOpened(payload)
		if err != nil {
			return err
		}
		if st.isOpen() {
			return outOfSequence(h, "came before")
		}
		st.o = holdfast.SenderOpened{
			StreamUID: m.StreamUID, Epoch: m.Epoch, Resume: m.Resume, Credit: holdfast.SendCredit(m.Credit),
			MaxBody: int(m.MaxBody), MaxFrameBytes: int(m.MaxFrame), Buffered: m.Buffered, Lent: true,
		}
		st.opened()
		return nil
	}
	if !st.isOpen() {
		return outOfSequence(h, "comes before the stream is open")
	}
	switch h.Type {
	case wire.TypeAccepted:
		m, err := wire.DecodeAccepted(payload)
		if err != nil {
			return err
		}
		st.tell.Lock()
		if !st.over.Load() {
			st.ev.Accepted(holdfast.Accepted{UpTo: m.UpTo, First: m.First, Count: m.Count, Duplicates: m.Duplicates, Suppressed: m.Suppressed, Credit: holdfast.SendCredit(m.Credit)})
		}
		st.tell.Unlock()
	case wire.TypeRefused:
		resume, e, err := wire.DecodeRefused(payload)
		if err != nil {
			return err
		}
		st.event(func() { st.ev.Refused(resume, status.ToError(e)) })
	case wire.TypeWaits:
		waits, reason, err := wire.DecodeWaits(payload)
		if err != nil {
			return err
		}
		st.event(func() { st.ev.Waits(waits, reason) })
	default:
		return outOfSequence(h, "is not one of a sender's stream")
	}
	return nil
}
