package failovertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// maxGrowth is what a broker's memory may grow by while its store is away.
const maxGrowth = 64 << 10 // KiB

// The database stops under load, and comes back: sends wait, or end as not stored or unknown (G10), nothing crashes, nothing that was acknowledged is
// lost or stored twice (G1, G3), memory stays flat, and service goes on by itself within 5 s of its answering again; both when its processes stand
// still and when they are killed.
func TestDatabaseAway(t *testing.T) { each(t, databaseAway) }

func databaseAway(t *testing.T, on store) {
	away := 6 * time.Second // more than the expiry
	if clitest.Soak() {
		away = 30 * time.Second
	}
	server := on.own(t)
	b := start(t, on.url(server), 2)
	h, l := load(t, b, on, seed(t))
	for _, how := range []struct {
		name       string
		stop, back func(nodes ...string) error
	}{
		{"paused", server.Pause, server.Resume},
		{"killed", server.Kill, func(...string) error { return server.Restart() }},
	} {
		before, most := b.memory(), map[string]int{}
		if err := how.stop(); err != nil {
			t.Fatal(err)
		}
		last := away
		if how.name == "paused" && on.stands > 0 {
			last = min(away, on.stands)
		}
		for end := time.Now().Add(last); time.Now().Before(end); pause(time.Second) {
			for addr, kib := range b.memory() {
				most[addr] = max(most[addr], kib)
			}
		}
		if err := how.back(); err != nil {
			t.Fatal(err)
		}
		stored, received := h.Progress()
		took := await(t, "progress", func() bool {
			s, r := h.Progress()
			return s > stored && r > received
		})
		t.Logf("%s: goes on after %v; memory before %v KiB, at most %v KiB", how.name, took, before, most)
		if took > within(maxGap) {
			t.Errorf("%s: service went on %v after the database answered", how.name, took)
		}
		for addr, kib := range most {
			if kib > before[addr]+maxGrowth {
				t.Errorf("%s: the memory of broker %s has grown from %d to %d KiB", how.name, addr, before[addr], kib)
			}
		}
		b.settle("plain", "keyed")
		h.Gaps()
		pause(3 * time.Second)
		b.gaps(h, "the database is back", time.Second)
	}
	b.finish(h, l, "plain", "keyed")
}

// memory returns what each broker has in memory, in KiB.
func (b *brokers) memory() map[string]int {
	b.t.Helper()
	all := map[string]int{}
	for _, m := range b.running() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.p.PID()))
		if err != nil {
			b.t.Fatalf("broker %s: %v", m.addr, err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		var kib int
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			b.t.Fatalf("broker %s: %v", m.addr, err)
		}
		all[m.addr] = kib
	}
	return all
}
