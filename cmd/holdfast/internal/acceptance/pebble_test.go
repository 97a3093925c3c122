package acceptance

import (
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// What the default journal promises holds for Pebble too, which it was before: a backlog is cheap, and what is stuck pins no log.
func TestPebble(t *testing.T) {
	t.Setenv(clitest.JournalEnv, "pebble")
	t.Run("backlog", func(t *testing.T) {
		body := pattern(100)
		testBacklog(t, &backlog{200 * mib, time.Second, func(int) holdfast.Message { return holdfast.Message{Body: body} }}, counts(100_000, 10_000_000))
	})
	t.Run("log", func(t *testing.T) { testLogSize(t, &logLoads[1], counts(20_000, 1_000_000)) })
}
