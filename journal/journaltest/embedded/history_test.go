package embedded

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard notes what a test would have failed with.
type heard struct {
	testing.TB
	said []string
}

func (h *heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

// inQueue makes messages of a sender as they are found in a queue, in that order.
func (h *history) inQueue(name string, ns ...uint64) (all []found) {
	for i, n := range ns {
		p := place{keyed, "a", n}
		m := h.message(p)
		var f found
		f.queue, f.Seq, f.ID, f.Message = name, uint64(i+1), holdfast.ID{Seq: n}, m
		all = append(all, f)
	}
	return all
}

// The judge of the runs tells what breaks a guarantee, and nothing else.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h *history)
		want string // what is told; empty: nothing
	}{
		{"all there", func(h *history) { h.judge(h.inQueue(keyed, 1, 2, 3), nil) }, ""},
		{"lost", func(h *history) { h.judge(h.inQueue(keyed, 1, 3), nil) }, "is lost"},
		{"deleted", func(h *history) {
			h.tryDelete(place{keyed, "a", 2})
			h.deletedOne(0, place{keyed, "a", 2})
			h.judge(h.inQueue(keyed, 1, 3), nil)
		}, ""},
		{"come back", func(h *history) {
			h.deletedOne(0, place{keyed, "a", 2})
			h.judge(h.inQueue(keyed, 1, 2, 3), nil)
		}, "has come back"},
		{"twice", func(h *history) { h.judge(h.inQueue(keyed, 1, 2, 2, 3), nil) }, "is there 2 times"},
		{"out of order", func(h *history) { h.judge(h.inQueue(keyed, 1, 3, 2), nil) }, "lies behind"},
		{"never sent", func(h *history) { h.judge(h.inQueue(keyed, 1, 2, 3, 4), nil) }, "was never sent"},
		{"gone once, then there", func(h *history) {
			h.tryDelete(place{keyed, "a", 2})
			h.judge(h.inQueue(keyed, 1, 3), nil)
			h.judge(h.inQueue(keyed, 1, 2, 3), nil)
		}, "has come back"},
		{"resumed too early", func(h *history) { h.resumed(0, keyed, "a", 3) }, "was acknowledged 3 messages and is told to go on at 3"},
		{"told to an earlier life", func(h *history) {
			h.cut(func() {})
			h.deletedOne(0, place{keyed, "a", 2})
			h.judge(h.inQueue(keyed, 1, 2, 3), nil)
		}, ""},
		{"configuration lost", func(h *history) {
			h.configured(0, keyed, h.tryConfig(keyed))
			h.judgeConfig(keyed, 0)
		}, "has configuration 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := &heard{TB: t}
			h := newHistory(said, 1, 100)
			for n := range uint64(3) {
				p := place{keyed, "a", n + 1}
				h.trySend(p)
				h.sentOne(0, p, holdfast.ID{Seq: n + 1}, nil)
			}
			c.do(h)
			got := strings.Join(said.said, "\n")
			if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}
