package failovertest

import (
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// The database stops under load, and comes back: nothing crashes, nothing that was acknowledged is lost or stored twice (G1, G3), and service goes
// on by itself within 5 s of its answering again; both when its processes stand still and when they are killed.
func TestDatabaseAway(t *testing.T) {
	away := 10 * time.Second
	if clitest.Soak() {
		away = 30 * time.Second
	}
	server, err := testserver.StartOwn("postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := start(t, stores[0].url(server), 2)
	h, l := load(t, b, seed(t))
	node := server.Nodes()[0]
	for what, do := range map[string]struct{ stop, back func() error }{
		"paused": {func() error { return server.Pause(node) }, func() error { return server.Resume(node) }},
		"killed": {func() error { return server.Kill(node) }, server.Restart},
	} {
		if err := do.stop(); err != nil {
			t.Fatal(err)
		}
		pause(away)
		if err := do.back(); err != nil {
			t.Fatal(err)
		}
		stored, received := h.Progress()
		took := await(t, "progress", func() bool {
			s, r := h.Progress()
			return s > stored && r > received
		})
		t.Logf("%s: goes on after %v", what, took)
		if took > maxGap {
			t.Errorf("%s: service went on %v after the database answered", what, took)
		}
		pause(5 * time.Second)
		h.Gaps()
		pause(3 * time.Second)
		b.gaps(h, "the database is back", time.Second)
	}
	b.finish(h, l, "plain", "keyed")
}
