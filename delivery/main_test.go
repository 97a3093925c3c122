package delivery_test

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// What the controllers log in tests is either checked by a test of its own logger, or noise.
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

// soak reports whether the full counts are to be run.
func soak() bool { return os.Getenv("HOLDFAST_SOAK") == "1" }
