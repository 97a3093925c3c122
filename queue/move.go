package queue

import (
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/holdfastmq/holdfast/queue/internal/timeset"
)

// mover is what goes on with the messages that move to another queue. That they move is in Core.moves.
type mover struct {
	todo  seqset.Set     // the shell was not asked yet, or is to be asked again
	out   map[uint64]int // the shell is at it; how often it has failed
	tries map[uint64]int // how often those that wait for another try have failed
	retry timeset.Index
}

func newMover() mover { return mover{out: make(map[uint64]int), tries: make(map[uint64]int)} }

// The delay before a move is tried again: doubled each time, in ms.
const (
	moveRetryFirst = 100
	moveRetryCap   = 30_000
)

// issueMoves asks the shell to move messages, a bounded number at once.
func (c *Core) issueMoves() {
	m := &c.mover
	for len(m.out) < c.o.Moves && m.todo.Len() > 0 && !c.replaying {
		x, _ := m.todo.Min()
		m.todo.Remove(x)
		_, v, ok := c.moves.Get(x)
		if !ok {
			continue // it came up again, and is gone
		}
		m.out[x] = m.tries[x]
		delete(m.tries, x)
		t, _ := c.entries.Get(x)
		c.effect(Move{Seq: x, At: v.at, Target: v.target, Reason: v.reason, Deliveries: int(t.count)})
	}
}

// cutMoves ends moves, and returns how many there were.
func (c *Core) cutMoves(lo, hi uint64) uint64 {
	if c.moves.Len() == 0 {
		return 0
	}
	m := &c.mover
	return c.moves.Cut(lo, hi, func(lo, hi uint64, _ move) {
		m.todo.RemoveRange(lo, hi)
		for x := lo; x < hi && len(m.out)+len(m.tries) > 0; x++ {
			delete(m.out, x)
			delete(m.tries, x)
		}
	})
}

// MoveDone answers a Move: nil deletes the message here, an error has it tried again later. Other seqs than such are ignored.
func (c *Core) MoveDone(now int64, seq uint64, err error) {
	c.begin(now)
	m := &c.mover
	if failed, ok := m.out[seq]; ok {
		delete(m.out, seq)
		if err == nil {
			c.emit(Event{Kind: KindMoved, Spans: []Span{{seq, 1}}})
		} else {
			m.tries[seq] = failed + 1
			m.retry.Add(c.now, c.now+min(moveRetryCap, int64(moveRetryFirst)<<min(failed, 16)), seq, seq+1)
		}
	}
	c.finish()
}

// tickMoves has moves that failed tried again.
func (c *Core) tickMoves() { popAll(&c.mover.retry, c.now, &c.mover.todo) }

// redriveJob is a Redrive that is under way. It is not stored: if it is cut short by a crash, so is its reply, and what
// it did not come to can be redriven again.
type redriveJob struct {
	token  Token
	target string
	left   uint64
	below  uint64 // only what was there when it was asked for
	at     uint64 // goes on from here
	done   uint64
}

// Redrive makes parked messages ready again, and sends ready ones (those that wait for a retry or for their key, too) to the queue
// target, or, if that is empty, those that came from another queue back to it. Their delivery budget begins anew. limit bounds
// how many, lowest seqs first, 0 for all. Reply.N is how many were set on their way.
func (c *Core) Redrive(now int64, t Token, target string, limit int) {
	if err := checkRedrive(target, limit); err != nil {
		c.reply(Reply{Token: t, Err: err})
		return
	}
	c.begin(now)
	left := uint64(limit)
	if limit == 0 {
		left = maxSeq
	}
	c.redrive = append(c.redrive, redriveJob{token: t, target: target, left: left, below: c.next})
	c.tickRedrive()
	c.finish()
}

// tickRedrive goes on with what is to be redriven.
func (c *Core) tickRedrive() {
	for budget := maxPieces; len(c.redrive) > 0; {
		j := &c.redrive[0]
		if budget = c.redriveSome(j, budget); budget <= 0 {
			c.again = true
			return
		}
		c.reply(Reply{Token: j.token, N: j.done})
		if c.redrive = c.redrive[1:]; len(c.redrive) == 0 {
			c.redrive = nil
		}
	}
}

// redriveSome goes on with a redrive for so many runs of messages, and returns how many are left of them: none unless it is done.
func (c *Core) redriveSome(j *redriveJob, budget int) int {
	var unpark, move []Span
	for j.left > 0 {
		lo, hi, ok := c.live.NextRun(j.at, j.below)
		if !ok {
			break
		}
		if budget--; budget <= 0 {
			break
		}
		state, end := c.stateRun(lo, hi)
		hi = lo + min(end-lo, j.left)
		j.at = hi
		switch state {
		case StateParked:
			unpark = appendSpan(unpark, lo, hi)
		case StateReady, StateBlocked, StateRetrying:
			if j.target == "" {
				a, b, ok := c.foreign.NextRun(lo, hi)
				if !ok {
					continue
				}
				lo, hi, j.at = a, b, b
			}
			move = appendSpan(move, lo, hi)
		default:
			continue
		}
		j.left -= hi - lo
		j.done += hi - lo
	}
	c.decide(Event{Kind: KindUnparked}, unpark)
	c.decide(Event{Kind: KindMoving, Target: j.target, Reason: ReasonRedrive}, move)
	return budget
}
