package holdfast_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// Design §11: batches are formed by what is waiting. The messages of a sender that sends now and then share frames where the broker is slow to
// answer, and wait for nothing where it is not.
func TestSlowAnswersGather(t *testing.T) {
	for _, c := range []struct {
		latency  time.Duration // of the broker
		frames   uint64        // at most
		most     time.Duration // from the call to the answer
		messages int
	}{
		{2 * time.Millisecond, 100, 5 * time.Millisecond, 100},
		{100 * time.Millisecond, 30, 301 * time.Millisecond, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNaive(t, &naiveOptions{latency: c.latency})
			s := newSender(t, n, holdfast.SenderOptions{})
			slowest := time.Duration(0)
			for i := range c.messages {
				began := time.Now()
				if err := s.SendAsync(t.Context(), msg(fmt.Sprint(i)), func(_ holdfast.ID, err error) {
					if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
					slowest = max(slowest, time.Since(began))
				}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			st := s.Stats()
			if st.Stored != uint64(c.messages) || st.Frames > c.frames {
				t.Errorf("answers after %v: %d stored in %d frames, want at most %d", c.latency, st.Stored, st.Frames, c.frames)
			}
			if slowest > c.most {
				t.Errorf("answers after %v: a message was answered after %v, want at most %v", c.latency, slowest, c.most)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
