package queue

import (
	"bytes"
	"fmt"

	"github.com/holdfastmq/holdfast/message"
)

// model is the naive queue: a map of messages, each with its state written out. It follows the events that a core decides, and says
// of each hand-over whether it was right (G2, G4, G6), looking at all messages each time.
type model struct {
	cfg   Config
	now   int64
	msgs  map[uint64]*modelMsg
	added map[uint64]*modelMsg // all that ever were, but for undone ones
	// sent is how often each body was stored.
	sent   map[string]int
	paused bool
	strict bool // the events are being decided, not replayed: check them
}

type modelMsg struct {
	alone     bool // was to be handed out alone before
	seq       uint64
	body      string
	size      int
	prio      int
	key       string
	dedup     string
	state     State
	due, from int64 // when it becomes ready, and when that was decided
	expires   int64
	at        int64
	lease     uint64
	announces bool
	started   bool // stored
	count     int
	base      int
	lost      int
}

func newModel() *model {
	return &model{msgs: map[uint64]*modelMsg{}, added: map[uint64]*modelMsg{}, sent: map[string]int{}, cfg: Config{}.WithDefaults(), strict: true}
}

// sure is three-valued.
type sure int

const (
	no sure = iota
	maybe
	yes
)

// due tells whether a time that was set is surely over for the core, whose buckets are late by up to 1/64.
func (m *model) due(x *modelMsg) sure {
	switch {
	case m.now < x.due:
		return no
	case m.now >= x.due+max(8, (x.due-x.from)/64):
		return yes
	}
	return maybe
}

// ready tells whether a message could be handed out but for its key.
func (m *model) ready(x *modelMsg) sure {
	switch x.state {
	case StateReady:
		return yes
	case StateDelayed, StateRetrying:
		return m.due(x)
	}
	return no
}

func (m *model) isolated(x *modelMsg) bool { return x.lost >= isolateAfter }

// free tells whether the key of a message allows its hand-over.
func (m *model) free(x *modelMsg) sure {
	out := yes
	if x.key == "" {
		return out
	}
	for _, y := range m.msgs {
		if y == x || y.key != x.key {
			continue
		}
		blocks := no
		switch y.state {
		case StateInFlight, StateMoving:
			blocks = yes
		case StateRetrying:
			blocks = yes - m.due(y)
		}
		if y.seq < x.seq {
			blocks = max(blocks, m.ready(y))
			if y.state == StateRetrying {
				blocks = yes // it blocks until it is ready, and goes first from then on
			}
		}
		out = min(out, yes-blocks)
	}
	return out
}

// pending returns a message that must be handed out if anybody can take it, or nil.
func (m *model) pending() *modelMsg {
	for _, x := range m.msgs {
		if !m.isolated(x) && m.ready(x) == yes && m.free(x) == yes {
			return x
		}
	}
	return nil
}

// apply follows an event. It returns what is wrong with it, or "".
func (m *model) apply(seq uint64, e *Event) string {
	m.now = e.At
	switch e.Kind {
	case KindAdded:
		return m.add(seq, e)
	case KindConfigured:
		m.cfg = *e.Config
		return ""
	case KindPaused:
		m.paused = e.Paused
		return ""
	case KindUndone:
		for x := e.Spans[0].Seq; x < e.Spans[0].Seq+e.Spans[0].Count; x++ {
			if a := m.added[x]; a != nil {
				m.sent[a.body]--
			}
			delete(m.added, x)
			delete(m.msgs, x)
		}
		return ""
	case KindPurged:
		m.msgs = map[uint64]*modelMsg{}
		return ""
	case KindLeased:
		if m.paused && m.strict {
			return "leased while paused"
		}
	case KindRelocated, KindProducerClosed, KindSuppressed:
		return ""
	}
	n := uint64(0)
	for _, s := range e.Spans {
		for x := s.Seq; x < s.Seq+s.Count; x++ {
			msg := m.msgs[x]
			if msg == nil {
				return fmt.Sprintf("event of kind %d for message %d, which is not there", e.Kind, x)
			}
			if bad := m.one(e, msg, n); bad != "" {
				return fmt.Sprintf("event of kind %d for message %+v: %s", e.Kind, *msg, bad)
			}
			n++
		}
	}
	return ""
}

// one follows what an event says of one message, the n-th that it names.
func (m *model) one(e *Event, x *modelMsg, n uint64) string {
	leased := x.state == StateInFlight
	switch e.Kind {
	case KindLeased:
		if m.strict {
			if bad := m.handOver(x); bad != "" {
				return bad
			}
		}
		x.state, x.lease, x.announces, x.started = StateInFlight, e.Lease+n, e.Announces, !e.Announces || m.isolated(x)
		return ""
	case KindStarted:
		x.started = true
		return wrongIf(!leased, "not leased")
	case KindReturned:
		x.end(e)
		x.state, x.due, x.from = StateReady, 0, e.At
		if e.Due > e.At {
			x.state, x.due = StateRetrying, e.Due
		}
		over := e.Counted && m.cfg.MaxDeliveries > 0 && x.count-x.base >= m.cfg.MaxDeliveries
		if over && e.Alone && m.cfg.MaxDeliveries > 1 && (x.count-x.base == m.cfg.MaxDeliveries || !x.alone) {
			over = false // once more, alone; also if the limit was lowered while it was leased
		}
		x.alone = x.alone || e.Alone
		return wrongIf(!leased, "not leased") + wrongIf(over, "over the limit") +
			wrongIf(e.Cause == CauseRelease && (e.Counted || e.Due > 0), "a release that counts or waits")
	case KindDeleted:
		delete(m.msgs, x.seq)
		return wrongIf(!leased, "not leased")
	case KindExpired:
		delete(m.msgs, x.seq)
		young := (x.expires == 0 || e.At < x.expires) && (m.cfg.Retention == 0 || e.At < x.at+m.cfg.Retention.Milliseconds())
		return wrongIf(young, "before its time") + wrongIf(x.state == StateMoving, "it moves")
	case KindDropped:
		delete(m.msgs, x.seq)
		return wrongIf(m.ready(x) == no, "not ready")
	case KindMoved:
		delete(m.msgs, x.seq)
		return wrongIf(x.state != StateMoving, "does not move")
	case KindParked, KindMoving:
		x.end(e)
		under := e.Cause != 0 && (m.cfg.MaxDeliveries == 0 || x.count-x.base < m.cfg.MaxDeliveries)
		x.state = StateParked
		if e.Kind == KindMoving {
			x.state = StateMoving
		}
		return wrongIf((e.Cause != 0) != leased, "leased or not") + wrongIf(under, "under the limit")
	case KindUnparked:
		parked := x.state == StateParked
		x.state, x.base, x.lost = StateReady, x.count, 0
		return wrongIf(!parked, "not parked")
	}
	return "unknown kind"
}

func wrongIf(bad bool, what string) string {
	if bad {
		return what + "; "
	}
	return ""
}

// end counts the end of a lease.
func (x *modelMsg) end(e *Event) {
	if e.Counted {
		x.count++
	}
	switch {
	case e.Alone:
		x.lost = isolateAfter
	case e.Lost:
		x.lost++
	case e.Kind == KindReturned && e.Cause == CauseNack:
		x.lost = 0
	}
}

// handOver says what is wrong with handing out a message, or "".
func (m *model) handOver(x *modelMsg) string {
	if m.ready(x) == no {
		return "not ready"
	}
	if m.free(x) == no {
		return "its key is blocked, or has a lower message"
	}
	if m.isolated(x) {
		return ""
	}
	for _, y := range m.msgs {
		before := y.prio > x.prio || y.prio == x.prio && y.seq < x.seq
		if y != x && before && !m.isolated(y) && m.ready(y) == yes && m.free(y) == yes {
			return fmt.Sprintf("message %+v comes first", *y)
		}
	}
	return ""
}

// add follows an Added event; what the messages say is taken from their frame.
func (m *model) add(seq uint64, e *Event) string {
	frame := e.Frames[0]
	if _, err := message.Check(frame, message.Limits{Internal: true}); err != nil {
		return fmt.Sprintf("frame: %v", err)
	}
	c := message.NewCursor(frame)
	for i := range e.Added.Count {
		raw, ok := c.Next()
		d, err := raw.Decode()
		if !ok || err != nil {
			return fmt.Sprintf("message %d of frame: %v, %v", i, ok, err)
		}
		x := &modelMsg{seq: seq + i, body: string(bytes.Clone(raw.Body)), size: raw.Size(), prio: d.Priority, key: d.Key, dedup: d.DedupID, at: e.At, from: e.At, state: StateReady}
		delay := d.Delay.Milliseconds()
		if delay == 0 {
			delay = m.cfg.DefaultDelay.Milliseconds()
		}
		if delay > 0 {
			x.state, x.due = StateDelayed, e.At+delay
		}
		if d.TTL > 0 {
			x.expires = e.At + d.TTL.Milliseconds()
		}
		if x.dedup != "" && m.strict {
			for _, y := range m.added {
				if y.dedup == x.dedup && y.at+m.cfg.DedupWindow.Milliseconds() > e.At {
					return fmt.Sprintf("message %d repeats the dedup id of message %d", x.seq, y.seq)
				}
			}
		}
		m.msgs[x.seq], m.added[x.seq] = x, x
		m.sent[x.body]++
	}
	if _, ok := c.Next(); ok {
		return "the frame has more messages than the event"
	}
	return ""
}
