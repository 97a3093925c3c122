package queue

import (
	"github.com/holdfastmq/holdfast/queue/internal/column"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// keys keeps the messages of each ordering key in order (G6): one of them at a time is on its way, the lowest of those
// that are not delayed or parked.
//
// A key is blocked by its messages that are leased, wait for a retry, or move. The messages behind stay in the ready sets until somebody comes
// across them there (Core.pick): then they wait aside, each key's in a set of its own, so that they are not come
// across again. When the key is free, the lowest of them goes back into its ready set, as the key's head; the others follow one
// by one. So a message is moved aside and back at most once for each time that it becomes ready, and memory is
// taken by blocked keys alone.
//
// This finds the lowest message of a key because a ready set is walked upwards. With keyed messages of several priorities there are
// several sets; then every keyed message is looked at as it becomes ready, and only each key's lowest one goes into a ready
// set (mixed). That takes some memory for every key that has a live message.
//
// States and heads follow from which messages are where; nothing of it is stored.
type keys struct {
	keyed    seqset.Set  // live messages with a key
	hashes   column.Keys // of them
	blocking seqset.Set  // those that block their keys
	states   map[uint64]*keyState
	perPrio  [maxPriority + 1]uint64 // live keyed messages by priority
	mixed    bool
	free     []*keyState
}

// keyState is what is known of a key that is blocked or has messages aside. By a collision of hashes it can
// be of two keys, which are then one.
type keyState struct {
	blockers int
	head     uint64     // the message that its turn has come for, in a ready set; 0 for none
	waiters  seqset.Set // aside; all above head
}

func newKeys() keys { return keys{states: make(map[uint64]*keyState)} }

// add notes the keys of new messages, whose seqs begin at seq.
func (k *keys) add(c *Core, seq uint64, sp []Special) {
	var lo, hi uint64
	for i := range sp {
		s := &sp[i]
		if s.KeyHash == 0 {
			continue
		}
		x := seq + uint64(s.Index)
		if x != hi {
			k.keyed.AddRange(lo, hi)
			lo = x
		}
		hi = x + 1
		k.hashes.Append(x, s.KeyHash)
		k.perPrio[s.Priority]++
	}
	if lo == hi {
		return
	}
	k.keyed.AddRange(lo, hi)
	if !k.mixed && !c.replaying {
		k.mix(c)
	}
}

// priorities returns of how many priorities there are live keyed messages.
func (k *keys) priorities() (used int) {
	for _, n := range k.perPrio {
		if n > 0 {
			used++
		}
	}
	return used
}

// mix begins to look at every keyed message once there are such of several priorities.
func (k *keys) mix(c *Core) {
	if k.mixed = k.priorities() > 1; !k.mixed {
		return
	}
	for lo, hi := range k.keyed.All() {
		for x := lo; x < hi; x++ {
			if c.leaveReady(x, x+1) == 1 {
				k.enter(c, x)
			}
		}
	}
}

// state returns the state of a key, made if there is none.
func (k *keys) state(hash uint64) *keyState {
	s := k.states[hash]
	if s == nil {
		if n := len(k.free); n > 0 {
			s, k.free = k.free[n-1], k.free[:n-1]
		} else {
			s = &keyState{}
		}
		k.states[hash] = s
	}
	return s
}

// each calls f for the keyed messages of a range. f must not change which messages have keys.
func (k *keys) each(lo, hi uint64, f func(x, hash uint64)) {
	if k.keyed.Len() == 0 {
		return
	}
	for a, b := range k.keyed.Runs(lo, hi) {
		for x := a; x < b; x++ {
			f(x, k.hashes.At(x))
		}
	}
}

// entered is called once messages are in the ready sets.
func (k *keys) entered(c *Core, lo, hi uint64) {
	if k.mixed {
		k.each(lo, hi, func(x, _ uint64) {
			if c.leaveReady(x, x+1) == 1 {
				k.enter(c, x)
			}
		})
	}
}

// enter puts a keyed message that is ready where it belongs.
func (k *keys) enter(c *Core, x uint64) {
	s := k.state(k.hashes.At(x))
	s.waiters.Add(x)
	c.waiting.Add(x)
	if s.head == x {
		s.head = 0
	}
	if s.head != 0 && x < s.head && c.leaveReady(s.head, s.head+1) == 1 {
		s.waiters.Add(s.head)
		c.waiting.Add(s.head)
		s.head = 0
	}
	k.settle(c, x)
}

// settle gives the turn to the lowest message aside of the key of x, if the key is free.
func (k *keys) settle(c *Core, x uint64) {
	hash := k.hashes.At(x)
	s := k.states[hash]
	if s == nil || s.blockers > 0 || s.head != 0 {
		return
	}
	m, ok := s.waiters.Min()
	if !ok {
		delete(k.states, hash)
		if len(k.free) < 1024 {
			k.free = append(k.free, s)
		}
		return
	}
	s.waiters.Remove(m)
	c.waiting.Remove(m)
	s.head = m
	c.ready[c.priority(m)].Add(m)
}

// claim tells whether a keyed message that was come across in a ready set may be handed out. If not, it waits aside.
func (k *keys) claim(c *Core, p int, x uint64, picked map[uint64]bool) bool {
	hash := k.hashes.At(x)
	s := k.states[hash]
	if s != nil && s.blockers == 0 && s.head > x && !picked[hash] && c.leaveReady(s.head, s.head+1) == 1 {
		// x became ready after the head, but comes before it.
		s.waiters.Add(s.head)
		c.waiting.Add(s.head)
		s.head = x
	}
	if !picked[hash] && (s == nil || s.blockers == 0 && (s.head == 0 || s.head == x)) {
		picked[hash] = true
		return true
	}
	s = k.state(hash)
	if s.head == x {
		s.head = 0
	}
	c.ready[p].Remove(x)
	s.waiters.Add(x)
	c.waiting.Add(x)
	return false
}

// block has messages block their keys.
func (k *keys) block(c *Core, lo, hi uint64) {
	k.each(lo, hi, func(x, hash uint64) {
		if k.blocking.Add(x) {
			s := k.state(hash)
			s.blockers++
			if s.head == x {
				s.head = 0
			}
		}
	})
}

// leaveWaiting takes messages out of those that wait aside.
func (k *keys) leaveWaiting(c *Core, lo, hi uint64) {
	commonRuns(&k.keyed, &c.waiting, lo, hi, func(a, b uint64) {
		c.waiting.RemoveRange(a, b)
		for x := a; x < b; x++ {
			k.state(k.hashes.At(x)).waiters.Remove(x)
		}
	})
}

// left is called once messages are in none of the states that concern their keys: not ready, not aside, and not blocking.
func (k *keys) left(c *Core, lo, hi uint64) {
	if len(k.states) == 0 {
		return
	}
	k.each(lo, hi, func(x, hash uint64) {
		s := k.states[hash]
		if s == nil {
			return
		}
		if k.blocking.Remove(x) {
			s.blockers--
		}
		if s.head == x {
			s.head = 0
		}
		k.settle(c, x)
	})
}

// returned makes messages ready that blocked their keys until now.
func (k *keys) returned(c *Core, lo, hi uint64) {
	c.makeReady(lo, hi)
	if len(k.states) == 0 || k.mixed {
		k.unblock(c, lo, hi)
		return
	}
	k.each(lo, hi, func(x, hash uint64) {
		s := k.states[hash]
		if s == nil {
			return
		}
		if k.blocking.Remove(x) {
			s.blockers--
		}
		if s.waiters.Len() > 0 && c.leaveReady(x, x+1) == 1 {
			// Which of them is the lowest shows in settle.
			s.waiters.Add(x)
			c.waiting.Add(x)
		}
		k.settle(c, x)
	})
}

// unblock has messages block their keys no longer.
func (k *keys) unblock(c *Core, lo, hi uint64) {
	k.each(lo, hi, func(x, hash uint64) {
		if k.blocking.Remove(x) {
			k.states[hash].blockers--
			k.settle(c, x)
		}
	})
}

// gone forgets messages.
func (k *keys) gone(c *Core, lo, hi uint64) {
	if !k.keyed.Any(lo, hi) {
		return
	}
	others := k.keyed.Count(lo, hi)
	if c.anyPrio {
		for p := 1; p <= maxPriority; p++ {
			commonRuns(&c.prio[p], &k.keyed, lo, hi, func(a, b uint64) {
				k.perPrio[p] -= b - a
				others -= b - a
			})
		}
	}
	k.perPrio[0] -= others
	k.keyed.RemoveRange(lo, hi)
	k.mixed = k.mixed && k.priorities() > 1
}
