package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// G4: the memory for unanswered messages is shared by all senders: a thousand idle ones leave room for each to send, and
// a message that is larger than its sender's window goes alone.
func TestManySendersAndLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		for range 1000 {
			if _, _, err := b.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, &moveEvents{done: make(chan error, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: make([]byte, message.DefaultMaxBody)}); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, b)
	})
}

// G4: what a sender sends beyond its credit ends its stream.
func TestCreditIsEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		ev := &moveEvents{done: make(chan error, 1)}
		s, opened, err := b.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, ev)
		if err != nil {
			t.Fatal(err)
		}
		var last error
		seq := uint64(1)
		for sent := uint64(0); sent <= opened.Credit.Bytes+1<<20 && last == nil; seq++ {
			var fb message.Builder
			fb.Add(&message.Message{Body: make([]byte, 16<<10)})
			frame := fb.Finish()
			sent += uint64(len(frame))
			last = s.Send(seq, frame)
		}
		if last == nil {
			t.Error("a sender went on without credit")
		}
		shut(t, b)
	})
}

// G4: messages larger than their sender's credit are held within the budget as well, however many senders have one for a queue that
// is full; those that find no room come again, and all are stored once when there is room.
func TestLargeMessagesStayWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, body, budget = 40, 256 << 10, 4 << 20
		b := open(t, memory.New(), Options{SendBudget: budget})
		q := b.Queue("full")
		if err := q.Create(t.Context(), queue.Config{MaxMessages: 1}); err != nil {
			t.Fatal(err)
		}
		send(t, q, "takes the room")
		done := make(chan error, senders)
		for range senders {
			s, err := q.NewSender(holdfast.SenderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := s.Send(context.Background(), holdfast.Message{Body: make([]byte, body)})
				done <- errors.Join(err, s.Close(context.Background()))
			}()
		}
		most := int64(0)
		for range 100 {
			pass(100 * time.Millisecond)
			held := b.Metrics(t.Context()).SendWindowBytes
			if held > budget+body+1<<10 {
				t.Fatalf("senders hold %d bytes of a budget of %d", held, budget)
			}
			most = max(most, held)
		}
		if most < budget/3 {
			t.Errorf("senders hold %d bytes, too few to show anything", most)
		}
		other := b.Queue("other")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := other.Send(ctx, holdfast.Message{Body: []byte("not kept out")}); err != nil {
			t.Error(err)
		}
		cancel()
		if err := q.Configure(t.Context(), queue.Config{}); err != nil {
			t.Fatal(err)
		}
		for range senders {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if d := describe(t, b, "full"); d.Stats.Depth != senders+1 {
			t.Errorf("%d messages are stored, want %d", d.Stats.Depth, senders+1)
		}
		if err := errors.Join(q.Close(t.Context()), other.Close(t.Context())); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		if held := b.Metrics(t.Context()).SendWindowBytes; held != 0 {
			t.Errorf("no sender is left, and %d bytes are held", held)
		}
		shut(t, b)
	})
}

// G4: the senders of a full queue, however many and however much they have sent, leave those of another queue the room to be fast, and to
// send what is large.
func TestFullQueueLeavesCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, budget = 30, 32 << 20
		b := open(t, memory.New(), Options{SendBudget: budget})
		var fb message.Builder
		fb.Add(&message.Message{Body: make([]byte, message.DefaultMaxBody)})
		large := len(fb.Finish())
		sender := func(queue string) *sender {
			link, _, err := b.OpenSender(t.Context(), queue, holdfast.SenderConfig{}, &moveEvents{done: make(chan error, 1)})
			if err != nil {
				t.Fatal(err)
			}
			return link.(*sender)
		}
		// Windows that have grown, and large messages under way.
		var full *owner
		for range senders {
			s := sender("full")
			full = s.o
			for range 3 {
				_ = full.takeMore(firstWindow)
			}
			_ = s.charge(1, 1, large)
		}
		for full.takeMore(firstWindow) {
			continue
		}
		if held := b.Metrics(t.Context()).SendWindowBytes; held < budget/4 || held > budget*6/10 {
			t.Errorf("the senders of the full queue hold %d bytes of a budget of %d", held, budget)
		}
		for _, name := range []string{"other", "third"} {
			s := sender(name)
			if err := s.charge(1, 1, large); err != nil || b.overdraft.Load() == s {
				t.Errorf("a large message to queue %s: %v; it is the one beyond the budget: %v", name, err, b.overdraft.Load() == s)
			}
			if !s.o.takeMore(1 << 20) {
				t.Errorf("a window of queue %s does not grow", name)
			}
		}
		shut(t, b)
	})
}

// G4: idle senders that hold the whole budget do not keep a large message out.
func TestLargeMessageBesideIdleSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{SendBudget: 4 * firstWindow})
		for range 3 {
			if _, _, err := b.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, &moveEvents{done: make(chan error, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: make([]byte, message.DefaultMaxBody)}); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, b)
	})
}

// creditEvents keeps the credit of the last acceptance.
type creditEvents struct {
	moveEvents
	credit holdfast.SendCredit
}

func (e *creditEvents) Accepted(a holdfast.Accepted) {
	e.credit = a.Credit
	e.moveEvents.Accepted(a)
}

// The window of a sender grows by what it uses, also where a message is so large that not two of them fit into the first one: else each
// would wait for the one before, and for a sync of its own.
func TestWindowGrowsByLargeMessages(t *testing.T) {
	for _, size := range []int{firstWindow/2 + 1<<10, firstWindow - 1<<10, 4 * firstWindow} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t, memory.New(), Options{})
			ev := &creditEvents{moveEvents: moveEvents{done: make(chan error, 1)}}
			s, _, err := b.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, ev)
			if err != nil {
				t.Fatal(err)
			}
			var used uint64
			for seq := range uint64(6) {
				var fb message.Builder
				fb.Add(&message.Message{Body: make([]byte, size)})
				frame := fb.Finish()
				used += uint64(len(frame))
				if err := errors.Join(s.Send(seq+1, frame), <-ev.done); err != nil {
					t.Fatal(err)
				}
			}
			if window := ev.credit.Bytes - used; window < uint64(2*size) {
				t.Errorf("after messages of %d bytes one by one, the window has %d bytes: not two of them fit", size, window)
			}
			shut(t, b)
		})
	}
}
