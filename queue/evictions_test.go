package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/message"
)

// G3: evictions are told at most once a minute, with their number.
func TestEvictionsAreTold(t *testing.T) {
	c, err := New(Options{MaxProducers: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c.Recovered(1)
	var b message.Builder
	b.Add(&message.Message{Body: []byte("x")})
	frame := b.Finish()
	info, err := message.Check(frame, message.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for i := range 130 { // one new producer a second
		now := int64(1000 * (i + 1))
		id := SenderID(i + 1)
		if _, err := c.OpenSender(now, id, SenderOptions{Producer: Producer{fmt.Sprint("p", i), "1"}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(now, SendBatch{Sender: id, ProducerSeq: 1, Frame: frame, Info: info}); err != nil {
			t.Fatal(err)
		}
		c.CloseSender(now, id, false)
		for _, e := range c.Take().Effects {
			if w, ok := e.(Warning); ok {
				said = append(said, w.Text)
			}
		}
	}
	if len(said) != 3 || !strings.HasPrefix(said[0], "1 producers") || !strings.HasPrefix(said[1], "59 producers") {
		t.Errorf("said %q", said)
	}
}
