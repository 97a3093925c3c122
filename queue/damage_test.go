package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastmq/holdfast/message"
	"pgregory.net/rapid"
)

// damaging is a queue some of whose records cannot be read, which shows when their messages are to be handed out.
type damaging struct {
	*rapid.T
	s        *shell
	bad      map[uint64]bool // records
	in       map[uint64]uint64
	receiver ReceiverID
	asked    uint64
	handed   uint64 // to the receiver
	held     []LeaseSpan
	deleted  map[uint64]bool
	lost     []Deliver // hand-overs that came to nothing, not told yet
}

// TestDamaged: whatever is damaged, every other message is delivered, nothing of a damaged record is, all of it stays in the queue, parked, and
// hand-overs that come to nothing cost the receiver no credit (G2, G4, §7).
func TestDamaged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &damaging{T: t, bad: map[uint64]bool{}, in: map[uint64]uint64{}, deleted: map[uint64]bool{}}
		d.s = newShell(t, Options{}, 1e12)
		d.s.onEffect = d.effect
		d.send(rapid.IntRange(1, 12).Draw(t, "records"))
		d.open()
		for n := range rapid.IntRange(0, 30).Draw(t, "steps") {
			d.step(n)
		}
		d.finish()
		d.check()
	})
}

// send stores records of messages, each of which may be damaged.
func (d *damaging) send(records int) {
	if err := openAnonymous(d.s.core, d.s.now, 1); err != nil {
		d.Fatalf("%v", err)
	}
	seq := uint64(0)
	for range records {
		var ms []message.Message
		for range rapid.IntRange(1, 5).Draw(d.T, "messages") {
			m := message.Message{Body: []byte("body"), Priority: rapid.SampledFrom([]int{0, 0, 2}).Draw(d.T, "priority")}
			m.Key = rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(d.T, "key")
			ms = append(ms, m)
		}
		frame, info := frameOf(ms...)
		record := d.s.core.NextSeq()
		if err := d.s.core.Send(d.s.now, SendBatch{Sender: 1, ProducerSeq: seq + 1, Frame: frame, Info: info}); err != nil {
			d.Fatalf("send: %v", err)
		}
		d.s.step(true)
		seq += uint64(len(ms))
		d.bad[record] = rapid.IntRange(0, 2).Draw(d.T, "damaged") == 0
		for i := range ms {
			d.in[record+uint64(i)] = record
		}
	}
}

func (d *damaging) open() {
	d.receiver++
	d.asked, d.handed, d.held, d.lost = 0, 0, nil, nil
	if err := d.s.core.OpenReceiver(d.s.now, d.receiver, ReceiverOptions{Announces: rapid.Bool().Draw(d.T, "announces")}); err != nil {
		d.Fatalf("%v", err)
	}
}

func (d *damaging) effect(e Effect, err error) {
	if err != nil {
		d.Fatalf("%v", err)
	}
	switch e := e.(type) {
	case LeaseLost:
		d.Fatalf("lost %v", e.Spans)
	case Deliver:
		var lost []Delivery
		for _, r := range e.Runs {
			for i := range r.Count {
				one := LeaseSpan{r.Lease + i, r.Seq + i, 1}
				if d.bad[d.in[one.Seq]] {
					lost = append(lost, Delivery{LeaseSpan: one})
				} else {
					d.held, d.handed = append(d.held, one), d.handed+1
				}
			}
		}
		if len(lost) > 0 {
			d.lost = append(d.lost, Deliver{e.Receiver, lost})
		}
	}
}

// tell says that what was to be handed out cannot be read.
func (d *damaging) tell() {
	for len(d.lost) > 0 {
		var leases []LeaseSpan
		for _, r := range d.lost[0].Runs {
			leases = append(leases, r.LeaseSpan)
		}
		d.lost = d.lost[1:]
		for record := range d.bad {
			if slices.ContainsFunc(leases, func(l LeaseSpan) bool { return d.in[l.Seq] == record }) {
				d.s.core.Damaged(d.s.now, record, leases)
			}
		}
		d.s.step(true)
	}
}

func (d *damaging) step(n int) {
	c := d.s.core
	switch rapid.SampledFrom([]string{"credit", "ack", "ack", "tell", "tell", "nack", "again", "time", "leave", "crash"}).Draw(d.T, "step") {
	case "credit":
		d.credit(uint64(rapid.IntRange(1, 6).Draw(d.T, "credit")))
	case "ack":
		if len(d.held) > 0 {
			d.ack()
		}
	case "nack":
		if len(d.held) > 0 {
			c.Nack(d.s.now, 0, d.held[:1], 1)
			d.held = d.held[1:]
		}
	case "tell":
		d.tell()
	case "again":
		c.Redrive(d.s.now, 0, "", 0)
	case "time":
		d.s.now += 1000
		c.Tick(d.s.now)
	case "leave":
		c.CloseReceiver(d.s.now, d.receiver, rapid.Bool().Draw(d.T, "clean"))
		d.s.step(true)
		d.open()
	case "crash":
		if n%3 == 0 {
			chunks, seq := d.s.snapshot()
			d.s.crash(true, chunks, seq, 0)
		} else {
			d.s.crash(true, nil, 0, 0)
		}
		d.open()
	}
	d.s.step(true)
}

func (d *damaging) credit(n uint64) {
	d.asked += n
	if err := d.s.core.Credit(d.s.now, d.receiver, d.asked, 1<<40); err != nil {
		d.Fatalf("%v", err)
	}
	d.s.step(true)
}

func (d *damaging) ack() {
	d.deleted[d.held[0].Seq] = true
	d.s.core.Ack(d.s.now, 0, d.held[:1])
	d.held = d.held[1:]
	d.s.step(true)
}

// finish receives everything that there is, one message at a time: a hand-over that came to nothing and cost credit would be the last.
func (d *damaging) finish() {
	d.s.core.CloseReceiver(d.s.now, d.receiver, true)
	d.s.step(true)
	d.s.core.Redrive(d.s.now, 0, "", 0) // what was parked before a crash is not known to be damaged
	d.s.step(true)
	d.open()
	intact := 0
	for _, record := range d.in {
		if !d.bad[record] {
			intact++
		}
	}
	for n := 0; len(d.deleted) < intact; n++ {
		if n > 1000 {
			d.Fatalf("%d of %d intact messages came: %+v", len(d.deleted), intact, d.s.core.Stats(d.s.now))
		}
		if len(d.held) == 0 && d.s.core.Stats(d.s.now).CreditOutstanding == 0 && len(d.lost) == 0 {
			d.credit(1)
		}
		d.tell()
		for len(d.held) > 0 {
			d.ack()
		}
		d.s.now += 60_000 // retries, and leases that a crash left behind
		d.s.core.Tick(d.s.now)
		d.s.step(true)
	}
	for range 10 {
		d.credit(100)
		d.tell()
		d.s.now += 60_000
		d.s.core.Tick(d.s.now)
		d.s.step(true)
	}
}

func (d *damaging) check() {
	c, want := d.s.core, uint64(0)
	for seq, record := range d.in {
		if d.bad[record] == d.deleted[seq] {
			d.Fatalf("message %d of record %d, damaged %v: delivered and acknowledged %v", seq, record, d.bad[record], d.deleted[seq])
		}
		if d.bad[record] {
			want++
		}
	}
	st := c.Stats(d.s.now)
	if st.CreditOutstanding != d.asked-d.handed {
		d.Fatalf("the receiver asked for %d and got %d, and %d are outstanding", d.asked, d.handed, st.CreditOutstanding)
	}
	if st.Damaged != want || st.Parked != want || st.Depth != want {
		d.Fatalf("%d messages are damaged, the queue has %d, %d parked, %d of them known to be damaged", want, st.Depth, st.Parked, st.Damaged)
	}
	for _, m := range c.Peek(StateParked, 0, 1000) {
		if !m.Damaged {
			d.Fatalf("peek: %+v", m)
		}
	}
	if c.Redrive(d.s.now, 0, "", 0); c.Stats(d.s.now).Damaged != 0 {
		d.Fatalf("damaged messages that were redriven still count: %d", c.Stats(d.s.now).Damaged)
	}
	d.s.step(true)
	d.credit(1000)
	d.tell()
	c.Purge(d.s.now, 0)
	d.s.step(true)
	if st := c.Stats(d.s.now); st.Damaged != 0 || st.Depth != 0 {
		d.Fatalf("after a purge: %+v", st)
	}
}

// A message that a receiver has stays with it, whatever is found out of its record; and a record that is not there, or does not hold the
// message any more, parks nothing.
func TestDamagedLeavesWhatIsHandedOut(t *testing.T) {
	s := newShell(t, Options{}, 1e12)
	var got []LeaseSpan
	s.onEffect = func(e Effect, _ error) {
		if d, ok := e.(Deliver); ok {
			for _, r := range d.Runs {
				got = append(got, r.LeaseSpan)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(openAnonymous(s.core, s.now, 1))
	frame, info := frameOf(message.Message{Body: []byte("a")}, message.Message{Body: []byte("b")}, message.Message{Body: []byte("c")})
	must(s.core.Send(s.now, SendBatch{Sender: 1, ProducerSeq: 1, Frame: frame, Info: info}))
	must(s.core.OpenReceiver(s.now, 1, ReceiverOptions{}))
	must(s.core.Credit(s.now, 1, 1, 1<<20))
	s.step(true)
	if found := s.core.Damaged(s.now, 2, nil); found != nil {
		t.Errorf("a record that is not there: parked %v", found)
	}
	found := s.core.Damaged(s.now, 1, nil)
	s.step(true)
	if want := (Span{2, 2}); len(found) != 1 || found[0] != want {
		t.Errorf("parked %v, want %v", found, want)
	}
	if found := s.core.Damaged(s.now, 1, nil); found != nil {
		t.Errorf("told twice: %v", found)
	}
	s.core.Ack(s.now, 0, got)
	s.step(true)
	if st := s.core.Stats(s.now); fmt.Sprint(st.Acked, st.Depth, st.Parked, st.Damaged) != "1 2 2 2" {
		t.Errorf("acked, depth, parked, damaged: %d %d %d %d", st.Acked, st.Depth, st.Parked, st.Damaged)
	}
}
