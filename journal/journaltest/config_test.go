package journaltest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// G11: all faults of a Config are reported together, and a rule that needs more than is declared says so.
func TestConfigRefused(t *testing.T) {
	t.Setenv("HOLDFAST_SEED", "x")
	rule := journaltest.Rules()[0]
	msg := check(t, rule, journaltest.Config{Records: -1, Takeovers: -2, Timeout: -time.Second})
	for _, want := range []string{"NewStore is nil", "Records is -1", "Takeovers is -2", "Timeout is -1s", "HOLDFAST_SEED"} {
		if !strings.Contains(msg, want) {
			t.Errorf("%q does not mention %q", msg, want)
		}
	}
	t.Setenv("HOLDFAST_SEED", "")
	cfg := config(func(*store) *flaw { return &flaw{} })
	cfg.Crashes = false
	for _, r := range journaltest.Rules() {
		if r.Promise == "" {
			t.Errorf("rule %s has no promise", r.Name)
		}
		if r.Name != "durable/power-cut" {
			continue
		}
		if missing := r.Missing(cfg); len(missing) != 1 || missing[0] != "Crashes" {
			t.Errorf("rule %s misses %v, want Crashes", r.Name, missing)
		}
		if msg := check(t, r, cfg); !strings.Contains(msg, "Config.Crashes") {
			t.Errorf("rule %s without its ability: %q", r.Name, msg)
		}
	}
}
