package queue

import (
	"testing"

	"github.com/holdfastmq/holdfast/message"
)

// Design §7, delivery counts: where the limit allows one more delivery and no other, its start is confirmed, so that a receiver that
// dies takes no message with it that it had only announced.
func TestLastDeliveryIsConfirmed(t *testing.T) {
	for most, want := range map[int]bool{0: false, 1: true, 2: false} {
		c, err := New(Options{Config: Config{MaxDeliveries: most}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Recovered(1)
		if _, err := c.OpenSender(1, 1, SenderOptions{}); err != nil {
			t.Fatal(err)
		}
		var b message.Builder
		b.Add(&message.Message{Body: []byte("x")})
		frame := b.Finish()
		info, err := message.Check(frame, message.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(1, SendBatch{Sender: 1, Frame: frame, Info: info}); err != nil {
			t.Fatal(err)
		}
		if err := c.OpenReceiver(1, 2, ReceiverOptions{Announces: true}); err != nil {
			t.Fatal(err)
		}
		if err := c.Credit(1, 2, 1, 100); err != nil {
			t.Fatal(err)
		}
		var got *Deliver
		for _, e := range c.Take().Effects {
			if d, ok := e.(Deliver); ok {
				got = &d
			}
		}
		if got == nil || got.Runs[0].ConfirmStart != want {
			t.Errorf("limit %d: %+v, want confirmation %v", most, got, want)
		}
	}
}
