package queue

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

// settleAll ticks until nothing is put off, and checks that each call does a bounded part.
func settleAll(t *testing.T, p *bench) (calls int) {
	t.Helper()
	for calls = 1; ; calls++ {
		p.c.Tick(p.now)
		out := p.c.Take()
		spans := 0
		for i := range out.Events {
			if n := len(out.Events[i].Spans); n > maxSpans {
				t.Fatalf("an event of kind %d has %d spans", out.Events[i].Kind, n)
			}
			spans += len(out.Events[i].Spans)
		}
		if spans > 4*maxPieces {
			t.Fatalf("one call decides %d spans", spans)
		}
		p.c.Stored(p.c.stored+1, p.c.next-1, 0)
		if at, ok := p.c.Deadline(); !ok || at > p.now {
			return calls
		}
		if calls > 10_000 {
			t.Fatal("the core wants to be called again and again")
		}
	}
}

// alternate sends n messages, m and a plain one by turns.
func alternate(t *testing.T, n int, m message.Message) *bench {
	t.Helper()
	plain := message.Message{Body: make([]byte, 10)}
	var ms []message.Message
	for i := range 500 {
		if i%2 == 0 {
			ms = append(ms, m)
		} else {
			ms = append(ms, plain)
		}
	}
	frame, info := frameOf(ms...)
	p := newBench(t, 0)
	for range n / 500 {
		p.now++
		p.send(t, frame, info)
		p.take(len(frame))
	}
	return p
}

// However many messages come up at once, and however scattered: one call does a bounded part, and asks for more (issue: store pauses,
// record limits).
func TestLargeNumbersAreCut(t *testing.T) {
	const n = 200_000
	t.Run("expiry", func(t *testing.T) {
		p := alternate(t, n, message.Message{TTL: time.Minute})
		p.now += 90_000
		if calls := settleAll(t, p); calls < n/2/maxSpans {
			t.Errorf("%d calls", calls)
		}
		if s := p.c.Stats(p.now); s.Expired != n/2 || s.Depth != n/2 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("due", func(t *testing.T) {
		p := alternate(t, n, message.Message{Delay: time.Minute})
		if s := p.c.Stats(p.now); s.Delayed != n/2 {
			t.Fatalf("%+v", s)
		}
		p.now += 90_000
		settleAll(t, p)
		if s := p.c.Stats(p.now); s.Ready != n {
			t.Errorf("%+v", s)
		}
	})
	t.Run("leases", func(t *testing.T) {
		p := alternate(t, n, message.Message{Priority: 1})
		lease(t, p, 2, n/2)
		p.now += 40_000
		settleAll(t, p)
		if s := p.c.Stats(p.now); s.LeaseExpired != n/2 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("lost receiver", func(t *testing.T) {
		p := alternate(t, n, message.Message{Priority: 1})
		lease(t, p, 2, n/2)
		p.c.CloseReceiver(p.now, 2, true)
		settleAll(t, p)
		if s := p.c.Stats(p.now); s.Ready != n || s.HeldReceivers != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("redrive", func(t *testing.T) {
		p := alternate(t, n, message.Message{Delay: time.Hour})
		p.c.Redrive(p.now, 5, "target", 0)
		p.c.Pause(p.now, 0, true)
		settleAll(t, p)
		if s := p.c.Stats(p.now); s.Moving != n/2 {
			t.Errorf("%+v", s)
		}
		if len(p.c.mover.out) != defaultMoves {
			t.Errorf("%d moves at once", len(p.c.mover.out))
		}
	})
}

// lease hands n messages to a receiver, in as many calls as it takes.
func lease(t *testing.T, p *bench, id ReceiverID, n uint64) {
	t.Helper()
	if err := p.c.OpenReceiver(p.now, id, ReceiverOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Credit(p.now, id, n, 1<<50); err != nil {
		t.Fatal(err)
	}
	settleAll(t, p)
	if s := p.c.Stats(p.now); s.InFlight != n {
		t.Fatalf("%+v", s)
	}
}

// A key with a long backlog does not stop the queue while it is blocked: the look-ahead is bounded, and goes on where it was (design §7, Index).
func TestKeyLookAhead(t *testing.T) {
	ms := make([]message.Message, 500)
	for i := range ms {
		ms[i].Key = "one"
	}
	frame, info := frameOf(ms...)
	p := newBench(t, 0)
	for range 400 {
		p.send(t, frame, info)
		p.take(len(frame))
	}
	other, otherInfo := frameOf(message.Message{Key: "other"})
	p.send(t, other, otherInfo)
	if err := p.c.OpenReceiver(p.now, 2, ReceiverOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Credit(p.now, 2, 10, 1<<50); err != nil {
		t.Fatal(err)
	}
	if s := p.c.Stats(p.now); s.Blocked > maxScan {
		t.Errorf("one call came across %d", s.Blocked)
	}
	calls := settleAll(t, p)
	if calls < 3 {
		t.Errorf("%d calls", calls)
	}
	if s := p.c.Stats(p.now); s.InFlight != 2 || s.Blocked != 200_000-1 {
		t.Errorf("%+v", s)
	}
	if bad := invariants(p.c); bad != "" {
		t.Error(bad)
	}
}

// What is of no interest any more does not pile up in the indexes (G8): only leased and acknowledged, only sent and expired early.
func TestIndexesStaySmall(t *testing.T) {
	frame, info := benchBatch(500, message.Message{TTL: time.Hour, Delay: 20 * time.Millisecond, DedupID: ""})
	p := newBench(t, 1000)
	for range 2000 {
		p.now += 25
		p.c.Tick(p.now)
		p.send(t, frame, info)
		p.take(len(frame))
		var spans []LeaseSpan
		for _, r := range p.runs {
			spans = append(spans, r.LeaseSpan)
			p.credit += r.Count
		}
		p.runs = p.runs[:0]
		p.c.Ack(p.now, 0, spans)
		if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
			t.Fatal(err)
		}
		p.take(0)
		for name, n := range map[string]uint64{"due": p.c.due.Len(), "expiry": p.c.expiry.Len(), "leases": p.c.leaseEnd.Len()} {
			if n > 1<<18 {
				t.Fatalf("index of %s has %d members", name, n)
			}
		}
	}
	c := p.c
	if n := c.sizes.Pages(); n > 4 {
		t.Errorf("%d pages of sizes", n)
	}
	if n := c.space.records.Len(); n > 10 {
		t.Errorf("%d records", n)
	}
	if n := len(c.ages.s); n > maxSamples {
		t.Errorf("%d samples of ages", n)
	}
	if n := len(c.space.told); n > 100 {
		t.Errorf("%d dead ranges", n)
	}
}

// A backlog of millions takes megabytes (G8), a tenth of which is measured here.
func TestBacklogMemory(t *testing.T) {
	if raceEnabled {
		return // it takes other amounts
	}
	const n = 1_000_000
	for _, c := range []struct {
		name string
		m    message.Message
		max  uint64
	}{
		{"plain", message.Message{Body: make([]byte, 100)}, 1 << 20},
		{"delay, TTL and key", message.Message{Body: make([]byte, 100), Delay: time.Minute, TTL: time.Hour, Key: "customer"}, 16 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := heap()
			p := backlog(t, n, c.m)
			if used := heap() - before; used > c.max {
				t.Errorf("%d messages take %d bytes", n, used)
			}
			if s := p.c.Stats(p.now); s.Depth != n {
				t.Errorf("%+v", s)
			}
			runtime.KeepAlive(p)
		})
	}
}

// Receivers with credit get the same share (design §7, Receivers).
func TestFairness(t *testing.T) {
	p := newBench(t, 0)
	for id := range ReceiverID(10) {
		if err := p.c.OpenReceiver(p.now, 10+id, ReceiverOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := p.c.Credit(p.now, 10+id, 1_000_000, 1<<50); err != nil {
			t.Fatal(err)
		}
	}
	got := map[ReceiverID]uint64{}
	for i := range 100 {
		frame, info := benchBatch(1+i*7%90, message.Message{})
		p.send(t, frame, info)
		for _, e := range p.c.Take().Effects {
			if d, ok := e.(Deliver); ok {
				for _, r := range d.Runs {
					got[d.Receiver] += r.Count
				}
			}
		}
	}
	low, high := uint64(1<<60), uint64(0)
	for _, n := range got {
		low, high = min(low, n), max(high, n)
	}
	if len(got) != 10 || high > low*13/10 {
		t.Errorf("shares: %v", got)
	}
}

// Senders that wait for room are served in turn, whatever their batches are (G4).
func TestSenderFairness(t *testing.T) {
	c, err := New(Options{Config: Config{MaxMessages: 100}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1e12)
	c.Recovered(now)
	for id := range SenderID(4) {
		if _, err := c.OpenSender(now, id, SenderOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			frame, info := benchBatch(10*int(id+1), message.Message{})
			if err := c.Send(now, SendBatch{Sender: id, Frame: frame, Info: info}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.OpenReceiver(now, 1, ReceiverOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := map[SenderID]uint64{}
	credit := uint64(0)
	for range 40 {
		credit += 50
		if err := c.Credit(now, 1, credit, 1<<50); err != nil {
			t.Fatal(err)
		}
		var acks []LeaseSpan
		for _, e := range c.Take().Effects {
			switch e := e.(type) {
			case Accepted:
				stored[e.Sender]++
			case Deliver:
				for _, r := range e.Runs {
					acks = append(acks, r.LeaseSpan)
				}
			}
		}
		c.Stored(c.stored+1, c.next-1, 1)
		c.Ack(now, 0, acks)
	}
	for id := range SenderID(4) {
		if stored[id] < 10 {
			t.Errorf("sender %d was served %d times: %v", id, stored[id], stored)
		}
	}
}

// Survivors of records that are mostly dead are stored anew, and the space comes back: 1 % of a backlog cannot pin the log (design §4).
func TestRelocation(t *testing.T) {
	s := newShell(t, Options{}, 1e12)
	c := s.core
	if _, err := c.OpenSender(s.now, 1, SenderOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.OpenReceiver(s.now, 2, ReceiverOptions{}); err != nil {
		t.Fatal(err)
	}
	var runs []Delivery
	s.onEffect = func(e Effect, _ error) {
		if d, ok := e.(Deliver); ok {
			runs = append(runs, d.Runs...)
		}
	}
	ms := make([]message.Message, 50)
	for i := range ms {
		ms[i].Body = make([]byte, 2000)
	}
	frame, info := frameOf(ms...)
	relocated := 0
	s.onEvent = func(_ uint64, e *Event) {
		if e.Kind == KindRelocated {
			relocated++
		}
	}
	peak := uint64(0)
	for i := range 1000 { // 100 MB
		s.now++
		if err := c.Send(s.now, SendBatch{Sender: 1, Frame: frame, Info: info}); err != nil {
			t.Fatal(err)
		}
		if err := c.Credit(s.now, 2, uint64(i+1)*50, 1<<50); err != nil {
			t.Fatal(err)
		}
		s.step(true)
		var spans []LeaseSpan
		for _, r := range runs {
			spans = append(spans, LeaseSpan{r.Lease + 1, r.Seq + 1, r.Count - 1}) // the first one stays
		}
		runs = runs[:0]
		c.Ack(s.now, 0, spans)
		c.Extend(s.now, 0, []LeaseSpan{{1, 1, 1}}, 0)
		s.step(true)
		for at, ok := c.Deadline(); ok && at <= s.now; at, ok = c.Deadline() {
			c.Tick(s.now)
			s.step(true)
		}
		peak = max(peak, c.Stats(s.now).StoredBytes)
	}
	st := c.Stats(s.now)
	if limit := uint64(relocateSlack + 4<<20); peak > limit+2*st.LiveBytes {
		t.Errorf("%d bytes were stored for %d live ones", peak, st.LiveBytes)
	}
	if relocated == 0 {
		t.Error("nothing was relocated")
	}
	for lo, hi := range c.live.All() {
		s.checkBodies(Span{lo, hi - lo})
	}
	if bad := invariants(c); bad != "" {
		t.Error(bad)
	}
	snap, seq := s.snapshot()
	s.crash(true, snap, seq, 10)
	for lo, hi := range s.core.live.All() {
		s.checkBodies(Span{lo, hi - lo})
	}
}

// An answer that does not fit what was asked changes nothing (G11).
func TestRelocatedRefuses(t *testing.T) {
	p := backlog(t, 500, message.Message{})
	frame, _ := frameOf(message.Message{})
	for name, a := range map[string]struct {
		spans  []Span
		frames [][]byte
	}{
		"number":   {[]Span{{1, 1}}, nil},
		"count":    {[]Span{{1, 2}}, [][]byte{frame}},
		"order":    {[]Span{{2, 1}, {1, 1}}, [][]byte{frame, frame}},
		"unstored": {[]Span{{5000, 1}}, [][]byte{frame}},
	} {
		var fe *message.FieldError
		if err := p.c.Relocated(p.now, a.spans, a.frames); !errors.As(err, &fe) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.c.Relocated(p.now, []Span{{1, 1}}, [][]byte{frame}); err != nil || len(p.c.Take().Events) > 0 {
		t.Errorf("not asked for: %v", err)
	}
}

// Deterministic: the same commands give the same events and effects, retry delays included.
func TestDeterministic(t *testing.T) {
	run := func() (out string) {
		p := alternate(t, 1000, message.Message{Priority: 2})
		lease(t, p, 2, 200)
		p.c.Nack(p.now, 1, []LeaseSpan{{1, 1, 1}, {2, 3, 1}, {5, 9, 1}}, -1)
		o := p.c.Take()
		return fmt.Sprintf("%+v", o)
	}
	if a, b := run(), run(); a != b {
		t.Errorf("\n%s\n%s", a, b)
	}
}
