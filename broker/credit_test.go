package broker

import (
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/message"
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
