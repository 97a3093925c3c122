package holdfast_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/linktest"
)

// rounds is how many seeds random tests run.
func rounds(few, many int) int {
	if os.Getenv("HOLDFAST_SOAK") != "" {
		return many
	}
	return few
}

// G1, G2, G3, G6, G9, G10 with random faults on the way, over the naive broker. Design §7: "retries acks, drains gracefully".
func TestRandomFaults(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for k := range rounds(20, 2000) {
		seed := base + uint64(k)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				n := newNaive(t, &naiveOptions{
					latency: time.Duration(rng.IntN(5)) * time.Millisecond, retryDelay: 100 * time.Millisecond,
					limit: rng.IntN(2) * 200, tight: rng.IntN(2) == 0,
				})
				linktest.Run(t, n, linktest.Options{
					Seed: seed, Life: 50*time.Millisecond + time.Duration(rng.IntN(1000))*time.Millisecond,
					Lag: time.Duration(1+rng.IntN(20)) * time.Millisecond,
				})
				<-time.After(time.Minute) // for stragglers on the way
			})
		})
	}
}

// recorder takes a run's complaints.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	faults []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}
func (r *recorder) Error(args ...any)   { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) has(guarantee string) bool {
	return slices.ContainsFunc(r.faults, func(s string) bool { return strings.HasPrefix(s, guarantee) })
}

// The judge is tested too: a broker that breaks a guarantee is found out.
func TestJudgeFindsOut(t *testing.T) {
	for guarantee, flaw := range map[string]func(n *naive){
		"G1": func(n *naive) { n.flaw = func(s *naiveSender, f naiveFrame) bool { return f.first%7 != 3 } },
		"G3": func(n *naive) {
			n.flaw = func(s *naiveSender, f naiveFrame) bool { delete(n.last, s.cfg.Producer); return true }
		},
		"G10": func(n *naive) {
			n.flaw = func(s *naiveSender, f naiveFrame) bool { s.lies = f.first%5 == 1; return true }
		},
	} {
		t.Run(guarantee, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNaive(t, &naiveOptions{latency: time.Millisecond, retryDelay: 100 * time.Millisecond})
				n.ask(func() { flaw(n) })
				r := &recorder{TB: t}
				linktest.Run(r, n, linktest.Options{Seed: 1, Life: 100 * time.Millisecond, Lag: 10 * time.Millisecond})
				<-time.After(time.Minute)
				if !r.has(guarantee) {
					t.Errorf("not found out; found %v", r.faults)
				}
			})
		})
	}
}
