package holdfast

import (
	"testing"
	"testing/synctest"
	"time"
)

// §9: the window of a consumer whose workers find nothing grows while the broker turns it over fast, also if it always has most of the credit, as
// it does while it reads messages from storage; and does not grow for a queue that has little.
func TestWindowOfSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			answer time.Duration // until what was asked for has come
			want   int
		}{{flowTime / 2, 64}, {flowTime * 2, 4}} {
			in := &intake{window: 4, minWindow: 4, capWindow: 64}
			st := &intakeStream{c: in}
			in.stream = st
			for range 10 {
				st.messages = st.delivered + uint64(in.window) // all credit is with the broker
				in.starved()
				in.starved() // another worker, at the same moment
				time.Sleep(c.answer)
				st.delivered = st.messages
			}
			if in.window != c.want {
				t.Errorf("answers after %v: window %d, want %d", c.answer, in.window, c.want)
			}
		}
	})
}
