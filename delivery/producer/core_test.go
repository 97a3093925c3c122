package producer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastmq/holdfast/delivery/window"
)

func millis(o Options) Options {
	if o.Window == 0 {
		o.Window = 16
	}
	if o.ResendTimeout == 0 {
		o.ResendTimeout, o.ResendCap = 500, 10_000
	}
	return o
}

// send numbers n messages and transmits them at once.
func send(t *testing.T, c *Core, n int, now int64) {
	t.Helper()
	c.Number(n)
	for {
		if _, ok := c.Transmit(1000, now); !ok {
			return
		}
	}
}

func wantRanges(t *testing.T, what string, got []Range, want ...Range) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

// Design §6: "Numbers messages from 1 … at most WindowSize (default 16) unacknowledged."
func TestNumbersFromOneWithinTheWindow(t *testing.T) {
	c := New(millis(Options{}))
	if first := c.Number(16); first != 1 || c.Room() != 0 {
		t.Fatalf("first %d, room %d", first, c.Room())
	}
	c.Transmit(1000, 0)
	wantRanges(t, "ack 3", c.Ack(nil, 3, 3), Range{3, 3})
	if c.Room() != 1 || c.Floor() != 1 {
		t.Errorf("room %d floor %d after an acknowledgement out of order", c.Room(), c.Floor())
	}
}

// Design §6: a consumer refuses what is at or beyond floor + MaxWindow. A message that nobody can handle
// must stop its producer before that, however many others are acknowledged.
func TestNeverNumbersBeyondTheConsumersWindow(t *testing.T) {
	c := New(millis(Options{}))
	send(t, c, 1, 0)
	total := 1
	for c.Room() > 0 {
		send(t, c, c.Room(), 0)
		total = int(c.Next() - 1)
		c.Ack(nil, 2, c.Next()-1)
	}
	if total != window.MaxWindow || c.Unsettled() != 1 {
		t.Fatalf("numbered %d with floor 1, unsettled %d", total, c.Unsettled())
	}
	wantRanges(t, "ack 1", c.Ack(nil, 1, 1), Range{1, 1})
	if c.Room() != 16 || c.Floor() != window.MaxWindow+1 {
		t.Errorf("room %d floor %d", c.Room(), c.Floor())
	}
}

// Design §6: "retransmits the same seq … after ResendTimeout (default 500 ms, then capped exponential backoff
// with jitter, cap 10 s)". The first is exact; the others are within a quarter below the doubled delay.
func TestBackoff(t *testing.T) {
	c := New(millis(Options{Seed: 7}))
	send(t, c, 1, 0)
	last, delay := int64(0), int64(500)
	for attempt := 1; attempt <= 12; attempt++ {
		at, ok := c.NextDue()
		if !ok {
			t.Fatal("nothing due")
		}
		waited := at - last
		if attempt == 1 && waited != 500 || waited > delay || waited < delay*3/4 {
			t.Fatalf("attempt %d after %d ms, want %d…%d", attempt, waited, delay*3/4, delay)
		}
		if due := c.Due(nil, at-1); len(due) != 0 {
			t.Fatalf("due early: %v", due)
		}
		due := c.Due(nil, at)
		if len(due) != 1 || due[0] != (Resend{Range{1, 1}, attempt}) {
			t.Fatalf("attempt %d: %v", attempt, due)
		}
		last, delay = at, min(2*delay, 10_000)
	}
	c.Ack(nil, 1, 1)
	if _, ok := c.NextDue(); ok {
		t.Error("something is due although all is settled")
	}
}

// Two producers that lost the same moment do not repeat in step for ever.
func TestJitterDiffersBySeed(t *testing.T) {
	times := map[int64]bool{}
	for seed := range uint64(20) {
		c := New(millis(Options{Seed: seed}))
		send(t, c, 1, 0)
		c.Due(nil, 500)
		at, _ := c.NextDue()
		times[at] = true
	}
	if len(times) < 10 {
		t.Errorf("20 seeds gave %d different times", len(times))
	}
}

// Design §6: "a forged one … cannot cancel a retransmission": what was never transmitted cannot be acknowledged.
func TestAcknowledgementOfTheUntransmittedIsIgnored(t *testing.T) {
	c := New(millis(Options{}))
	c.Number(3)
	c.Transmit(2, 0)
	wantRanges(t, "ack 1…100", c.Ack(nil, 1, 100), Range{1, 2})
	wantRanges(t, "again", c.Ack(nil, 0, 100))
	if c.Unsettled() != 1 || !c.Waiting() {
		t.Errorf("unsettled %d, waiting %v", c.Unsettled(), c.Waiting())
	}
}

// Design §6, durable producer: "sends a seq only after storing it".
func TestHoldUntilReleased(t *testing.T) {
	c := New(millis(Options{Hold: true, First: 40}))
	c.Number(3)
	if r, ok := c.Transmit(10, 0); ok {
		t.Fatalf("transmitted %v before it was stored", r)
	}
	c.Release(41)
	if r, ok := c.Transmit(10, 0); !ok || r != (Range{40, 41}) {
		t.Fatalf("%v %v", r, ok)
	}
	wantRanges(t, "forged", c.Ack(nil, 42, 42))
}

// naive is the specification of Core with one record for each message.
type naive struct {
	o        Options
	msgs     []naiveMsg // by number − 1
	floor    int
	cursor   int
	reached  int
	released int
}

type naiveMsg struct {
	settled, flying bool
	attempt         int
	notBefore, due  int64 // the earliest and the latest time of the next repetition
}

func (m *naive) unsettled() (n int) {
	for _, x := range m.msgs {
		if !x.settled {
			n++
		}
	}
	return n
}

func (m *naive) settle(i int) {
	m.msgs[i].settled = true
	for m.floor < len(m.msgs) && m.msgs[m.floor].settled {
		m.floor++
	}
	m.cursor = max(m.cursor, m.floor)
}

// A random walk of everything that a Core does, beside a model with one record for each message. Repetitions
// are checked against the span of time that jitter and grouping allow.
func TestCoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Window:        rapid.IntRange(1, 200).Draw(t, "window"),
			ResendTimeout: 8, ResendCap: rapid.Int64Range(8, 100).Draw(t, "cap"),
			Hold: rapid.Bool().Draw(t, "hold"), Seed: rapid.Uint64().Draw(t, "seed"),
		}
		c, m := New(o), &naive{o: o}
		now := int64(0)
		delay := func(attempt int) int64 { return min(8<<min(attempt, 20), o.ResendCap) }
		t.Repeat(map[string]func(*rapid.T){
			"number": func(t *rapid.T) {
				n := rapid.IntRange(0, c.Room()).Draw(t, "n")
				if first := c.Number(n); first != uint64(len(m.msgs))+1 {
					t.Fatalf("first %d", first)
				}
				m.msgs = append(m.msgs, make([]naiveMsg, n)...)
				if !o.Hold {
					m.released = len(m.msgs)
				}
			},
			"release": func(t *rapid.T) {
				if !o.Hold {
					return
				}
				m.released = rapid.IntRange(m.released, len(m.msgs)).Draw(t, "upto")
				c.Release(uint64(m.released))
			},
			"transmit": func(t *rapid.T) {
				limit := rapid.IntRange(1, 50).Draw(t, "limit")
				r, ok := c.Transmit(limit, now)
				i := m.cursor
				for i < m.released && m.msgs[i].settled {
					i++
				}
				if ok != (i < m.released) {
					t.Fatalf("Transmit %v %v, want one: %v", r, ok, i < m.released)
				}
				if !ok {
					return
				}
				if r.First != uint64(i)+1 || r.Len() > limit {
					t.Fatalf("Transmit %v, want from %d", r, i+1)
				}
				for ; uint64(i) < r.Last; i++ {
					if m.msgs[i].settled {
						t.Fatalf("Transmit %v has the settled %d", r, i+1)
					}
					m.msgs[i].flying, m.msgs[i].attempt = true, 0
					m.msgs[i].notBefore, m.msgs[i].due = now+8, now+8
				}
				if i < m.released && !m.msgs[i].settled && r.Len() < limit {
					t.Fatalf("Transmit %v is too short", r)
				}
				m.cursor = i
				m.reached = max(m.reached, i)
			},
			"ack": func(t *rapid.T) {
				first := rapid.IntRange(0, len(m.msgs)+2).Draw(t, "first")
				last := first + rapid.IntRange(0, 70).Draw(t, "more")
				got := c.Ack(nil, uint64(first), uint64(last))
				var want []Range
				for i := max(first, 1) - 1; i < min(last, m.reached); i++ {
					if m.msgs[i].settled {
						continue
					}
					m.settle(i)
					if seq := uint64(i) + 1; len(want) > 0 && want[len(want)-1].Last == seq-1 {
						want[len(want)-1].Last = seq
					} else {
						want = append(want, Range{seq, seq})
					}
				}
				if len(got) != len(want) {
					t.Fatalf("Ack %d…%d settled %v, want %v", first, last, got, want)
				}
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("Ack %d…%d settled %v, want %v", first, last, got, want)
					}
				}
			},
			"due": func(t *rapid.T) {
				now += rapid.Int64Range(0, 40).Draw(t, "step")
				repeated := map[int]bool{}
				for _, r := range c.Due(nil, now) {
					for i := int(r.First) - 1; uint64(i) < r.Last; i++ {
						x := &m.msgs[i]
						if x.settled || !x.flying || repeated[i] || x.notBefore > now || r.Attempt != x.attempt+1 {
							t.Fatalf("at %d repeated %d (%v): %+v", now, i+1, r, *x)
						}
						repeated[i] = true
						x.attempt++
						d := delay(x.attempt)
						x.notBefore, x.due = now+d-d/4, now+d
					}
				}
				for i, x := range m.msgs {
					if x.flying && !x.settled && !repeated[i] && x.due <= now {
						t.Fatalf("at %d did not repeat %d: %+v", now, i+1, x)
					}
				}
			},
			"": func(t *rapid.T) {
				if c.Unsettled() != m.unsettled() || c.Floor() != uint64(m.floor)+1 || c.Next() != uint64(len(m.msgs))+1 {
					t.Fatalf("unsettled %d floor %d next %d; want %d %d %d", c.Unsettled(), c.Floor(), c.Next(),
						m.unsettled(), m.floor+1, len(m.msgs)+1)
				}
				if c.Room() != min(o.Window-m.unsettled(), m.floor+window.MaxWindow-len(m.msgs)) {
					t.Fatalf("room %d", c.Room())
				}
				flying := false
				for _, x := range m.msgs {
					flying = flying || x.flying && !x.settled
				}
				if _, ok := c.NextDue(); ok != flying {
					t.Fatalf("NextDue %v, want %v", ok, flying)
				}
			},
		})
	})
}

// A window full of single messages is numbered, transmitted, acknowledged in any order, without allocating
// in the steady state, and a batch costs no more than one message.
func BenchmarkCore(b *testing.B) {
	for _, batch := range []int{1, 64, 1024} {
		b.Run(map[int]string{1: "one", 64: "64", 1024: "1024"}[batch], func(b *testing.B) {
			c := New(Options{Window: 16384, ResendTimeout: 500e6, ResendCap: 10e9})
			settled := make([]Range, 0, 8)
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				for c.Room() >= batch {
					c.Number(batch)
					c.Transmit(batch, now)
				}
				for seq := c.Floor(); seq < c.Next(); seq += uint64(batch) {
					settled = c.Ack(settled[:0], seq, seq+uint64(batch)-1)
				}
				now++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16384, "ns/message")
		})
	}
}

// Design §6, durable producer: "resumes after a crash": under the same numbers, with the floor of what is not
// settled, everything unsettled going again first.
func TestRestore(t *testing.T) {
	c := Restore(millis(Options{Window: 4}), 11, []Range{{3, 4}, {6, 6}, {8, 9}})
	if c.Floor() != 3 || c.Next() != 11 || c.Unsettled() != 5 || c.Room() != 0 {
		t.Fatalf("floor %d next %d unsettled %d room %d", c.Floor(), c.Next(), c.Unsettled(), c.Room())
	}
	wantRanges(t, "late acknowledgement", c.Ack(nil, 1, 20), Range{3, 4}, Range{6, 6}, Range{8, 9})
	if c.Floor() != 11 || c.Room() != 4 {
		t.Errorf("floor %d room %d", c.Floor(), c.Room())
	}

	c = Restore(millis(Options{}), 11, []Range{{3, 4}, {8, 9}})
	var got []Range
	for r, ok := c.Transmit(100, 0); ok; r, ok = c.Transmit(100, 0) {
		got = append(got, r)
	}
	wantRanges(t, "again", got, Range{3, 4}, Range{8, 9})

	c = Restore(millis(Options{}), 11, nil)
	if c.Floor() != 11 || c.Waiting() || c.Number(1) != 11 {
		t.Error("a producer with nothing unsettled goes on at its next number")
	}
}
