package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// admin implements holdfast.Admin.
type admin struct{ b *Broker }

// Admin implements holdfast.Link.
func (b *Broker) Admin() holdfast.Admin { return admin{b} }

// ask runs f on the queue's actor, and returns once everything decided by then is stored. If it returns an error, what f
// writes must not be read: when ctx has ended, f may still be to run.
func (o *owner) ask(ctx context.Context, what string, f func(a *turn)) error {
	done := make(chan error, 1)
	err := o.tell(ctx, &cmdFunc{
		do: func(o *owner, a *turn) {
			f(a)
			// The effects of f come before this in the order of After.
			decided := o.settle(a)
			a.After(func(err error) {
				if !decided && errors.Is(err, journal.ErrFull) {
					err = nil // what was refused for lack of room was another's
				}
				done <- err
			})
		},
		lost: func(err error) { done <- err },
	})
	if err == nil {
		select {
		case err = <-done:
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", holdfast.ErrUnknown, context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("%s queue %q: %w", what, o.name, err)
	}
	return nil
}

// read asks for something that f takes from the owner's state. What f returned when the context had ended already is nobody's.
func read[T any](ctx context.Context, o *owner, what string, f func(a *turn) T) (T, error) {
	var got, none T
	if err := o.ask(ctx, what, func(a *turn) { got = f(a) }); err != nil {
		return none, err // not got: f may still run
	}
	return got, nil
}

// command runs a command of the core that answers with a Reply.
func (o *owner) command(ctx context.Context, what string, f func(a *turn, t queue.Token)) (queue.Reply, error) {
	var r queue.Reply
	err := o.ask(ctx, what, func(a *turn) {
		f(a, o.token(func(q queue.Reply, err error) {
			if r = q; err != nil {
				r.Err = err
			}
		}))
	})
	if err != nil {
		return queue.Reply{}, err // not r: see ask
	}
	if r.Err != nil {
		err = fmt.Errorf("%s queue %q: %w", what, o.name, r.Err)
	}
	return r, err
}

func (ad admin) Create(ctx context.Context, name string, cfg queue.Config) error {
	if err := queue.ValidName(name); err != nil {
		return fmt.Errorf("create queue: %w", err)
	}
	if err := ad.validConfig(ctx, name, cfg); err != nil {
		return fmt.Errorf("create queue %q: %w", name, err)
	}
	existed, err := ad.b.exists(ctx, name)
	if err != nil {
		return fmt.Errorf("create queue: %w", err)
	}
	o, err := ad.b.owner(ctx, name, true)
	if err != nil {
		return fmt.Errorf("create queue: %w", err)
	}
	if existed {
		var untouched bool
		have, err := read(ctx, o, "create", func(*turn) queue.Config {
			untouched = o.core.Untouched()
			return o.core.Config()
		})
		switch {
		case err != nil:
			return err
		case untouched: // an earlier create got no further than that there is a queue
		case have != cfg.WithDefaults():
			return fmt.Errorf("create queue %q: %w", name, holdfast.ErrQueueExists)
		default:
			return nil
		}
	}
	return o.configure(ctx, "create", cfg)
}

func (o *owner) configure(ctx context.Context, what string, cfg queue.Config) error {
	_, err := o.command(ctx, what, func(a *turn, t queue.Token) {
		o.core.Configure(a.Now(), t, cfg)
		o.configured(a)
	})
	return err
}

func (ad admin) Configure(ctx context.Context, name string, cfg queue.Config) error {
	if err := ad.validConfig(ctx, name, cfg); err != nil {
		return fmt.Errorf("configure queue %q: %w", name, err)
	}
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return fmt.Errorf("configure queue: %w", err)
	}
	return o.configure(ctx, "configure", cfg)
}

// validConfig checks a configuration, and that dead letters do not go round in a circle.
func (ad admin) validConfig(ctx context.Context, name string, cfg queue.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cycle := &message.FieldError{Field: "dead-letter queue", Fault: fmt.Sprintf("%q leads back to %q", cfg.DeadLetter, name)}
	for next := cfg.DeadLetter; next != ""; {
		if next == name {
			return cycle
		}
		at, err := ad.b.configOf(ctx, next)
		if errors.Is(err, holdfast.ErrNoQueue) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at dead-letter queue %q: %w", next, err)
		}
		next = at.DeadLetter
	}
	return nil
}

func (ad admin) List(ctx context.Context) ([]holdfast.QueueInfo, error) {
	names, err := ad.b.names(ctx)
	if err != nil {
		return nil, err
	}
	if ad.b.o.Cluster != nil { // which knows what the others have
		names = slices.DeleteFunc(names, func(name string) bool { return !ad.b.has(name) })
	}
	out := make([]holdfast.QueueInfo, 0, len(names))
	for _, name := range names {
		out = append(out, ad.info(ctx, name))
	}
	return out, nil
}

// info describes a queue without waiting for its recovery.
func (ad admin) info(ctx context.Context, name string) holdfast.QueueInfo {
	info := holdfast.QueueInfo{Name: name, Owner: ad.b.o.Name}
	h, err := ad.b.get(name, false)
	if err != nil {
		info.Error = err.Error()
		return info
	}
	select {
	case <-h.ready:
	default:
		return info
	}
	if h.err != nil {
		info.Error = h.err.Error()
		return info
	}
	if err := h.owner.describe(ctx, &info); err != nil {
		info.Error = err.Error()
	}
	return info
}

func (o *owner) describe(ctx context.Context, info *holdfast.QueueInfo) error {
	var got holdfast.QueueInfo // not *info: see ask
	err := o.ask(ctx, "describe", func(a *turn) {
		got = holdfast.QueueInfo{
			Name: o.name, StreamUID: o.info.UID, Owner: o.b.o.Name, Epoch: o.info.Epoch, Ready: true,
			Config: o.core.Config(), Stats: o.core.Stats(a.Now()), Paused: o.core.Paused(),
		}
		if got.Stats.Damaged > 0 && o.damage != nil {
			got.Damage = o.damage.Error()
		}
	})
	if err == nil {
		*info = got
	}
	return err
}

func (ad admin) Describe(ctx context.Context, name string) (holdfast.QueueInfo, error) {
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return holdfast.QueueInfo{}, err
	}
	var info holdfast.QueueInfo
	err = o.describe(ctx, &info)
	return info, err
}

func (ad admin) Pause(ctx context.Context, name string, paused bool) error {
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return err
	}
	_, err = o.command(ctx, "pause", func(a *turn, t queue.Token) { o.core.Pause(a.Now(), t, paused) })
	return err
}

func (ad admin) Purge(ctx context.Context, name string) (uint64, error) {
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return 0, err
	}
	r, err := o.command(ctx, "purge", func(a *turn, t queue.Token) { o.core.Purge(a.Now(), t) })
	return r.N, err
}

func (ad admin) Redrive(ctx context.Context, name, target string, limit int) (uint64, error) {
	if limit < 0 {
		return 0, fmt.Errorf("redrive queue %q: %w", name, &message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", limit), Limit: "0 or more"})
	}
	if target != "" {
		if err := queue.ValidName(target); err != nil {
			return 0, fmt.Errorf("redrive queue %q: target: %w", name, err)
		}
		if target == name {
			return 0, fmt.Errorf("redrive queue %q: %w", name, &message.FieldError{Field: "target", Fault: "is the queue itself"})
		}
		if ok, err := ad.b.exists(ctx, target); err != nil || !ok {
			return 0, fmt.Errorf("redrive queue %q to %q: %w", name, target, cmp.Or(err, holdfast.ErrNoQueue))
		}
	}
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return 0, err
	}
	r, err := o.command(ctx, "redrive", func(a *turn, t queue.Token) { o.core.Redrive(a.Now(), t, target, limit) })
	return r.N, err
}

func (ad admin) Peek(ctx context.Context, name string, po holdfast.PeekOptions) ([]holdfast.PeekedMessage, error) {
	if po.Limit == 0 {
		po.Limit = 10
	}
	if po.Limit < 0 || po.Limit > holdfast.MaxPeek {
		return nil, fmt.Errorf("peek queue %q: %w", name, &message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", po.Limit), Limit: fmt.Sprintf("1 to %d", holdfast.MaxPeek)})
	}
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return nil, err
	}
	return o.peek(ctx, po)
}

// peekBytes is how many bytes of bodies one peek returns, about; the caller goes on from there.
const peekBytes = 16 << 20

// peekAtOnce is for how many messages a peek holds the queue's goroutine, which others wait for.
const peekAtOnce = 64

func (o *owner) peek(ctx context.Context, po holdfast.PeekOptions) ([]holdfast.PeekedMessage, error) {
	var out []holdfast.PeekedMessage
	x := peeker{o: o}
	for left := po.Limit; left > 0 && x.bytes < peekBytes; {
		var infos []queue.MessageInfo
		var at [][]located
		err := o.ask(ctx, "peek", func(*turn) {
			infos = o.core.Peek(po.State, po.From, min(left, peekAtOnce))
			for _, m := range infos {
				at = append(at, o.locate([]queue.Span{{Seq: m.Seq, Count: 1}}))
			}
		})
		if err != nil {
			return nil, err
		}
		for i, info := range infos {
			m := holdfast.PeekedMessage{MessageInfo: info, ID: holdfast.ID{Stream: o.info.UID, Seq: info.Seq}}
			if po.Bodies {
				there, err := x.body(ctx, &m, at[i])
				if err != nil {
					return nil, fmt.Errorf("peek queue %q: %w", o.name, err)
				}
				if !there {
					continue // gone in the meantime
				}
			}
			if out = append(out, m); x.bytes >= peekBytes {
				break
			}
		}
		if len(infos) < peekAtOnce {
			break
		}
		left -= len(infos)
		po.From = infos[len(infos)-1].Seq + 1
	}
	return out, nil
}

// peeker reads the bodies of peeked messages.
type peeker struct {
	o     *owner
	bytes int
	read  []*entry      // last
	bad   []*unreadable // last, so that a damaged record is not read again for each of its messages
}

// body adds to a message its body, or why it cannot be read. It returns false for one that is gone.
func (x *peeker) body(ctx context.Context, m *holdfast.PeekedMessage, at []located) (bool, error) {
	if len(at) > 0 && isIn(at[0].Record, x.bad) {
		m.Error = x.bad[0].Error()
		return true, nil
	}
	raw, read, ok, err := x.o.readOne(ctx, m.Seq, at, x.read)
	x.read = read
	if bad := corruptAt(err); bad != nil {
		x.bad = bad
		m.Error = bad[0].Error()
		return true, nil
	}
	if err != nil || !ok {
		return false, err
	}
	d, err := raw.Decode()
	if err != nil {
		m.Error = fmt.Sprintf("message at seq %d: %v", m.Seq, err)
		return true, nil
	}
	m.Message, m.Hops = d.Message, d.Hops
	if d.HasOrigin {
		m.ID = holdfast.ID{Stream: d.Origin.UID, Seq: d.Origin.Seq}
	}
	x.bytes += raw.Size()
	return true, nil
}

func (ad admin) Settle(ctx context.Context, name string, op holdfast.SettleOp, receipts []holdfast.Receipt, d time.Duration) ([]queue.Outcome, error) {
	ops := map[holdfast.SettleOp]settleOp{
		holdfast.SettleAck: opAck, holdfast.SettleNack: opNack, holdfast.SettleRelease: opRelease, holdfast.SettleExtend: opExtend}
	so, ok := ops[op]
	if !ok {
		return nil, fmt.Errorf("settle in queue %q: %w", name, &message.FieldError{Field: "operation", Fault: fmt.Sprintf("%d is not one", op)})
	}
	o, err := ad.b.owner(ctx, name, false)
	if err != nil {
		return nil, err
	}
	spans := make([]queue.LeaseSpan, len(receipts))
	for i, r := range receipts {
		if r.Stream != o.info.UID {
			return nil, fmt.Errorf("settle in queue %q: %w", name, &message.FieldError{Field: "receipt", Fault: r.String() + " is of another queue"})
		}
		spans[i] = queue.LeaseSpan{Lease: r.Lease, Seq: r.Seq, Count: 1}
	}
	if err := validSpans(spans); err != nil {
		return nil, fmt.Errorf("settle in queue %q: %w", name, err)
	}
	r, err := o.command(ctx, "settle in", func(a *turn, t queue.Token) {
		(&cmdSettle{op: so, spans: spans, d: d}).runAs(o, a, t)
	})
	return r.Outcomes, err
}
