package pebble

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// soak is the factor of the counts of random tests.
var soak = 1

func TestMain(m *testing.M) {
	if held, err := directory.Held(os.Stdin, os.Stdout); held {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		soak = 20
	}
	goleak.VerifyTestMain(m)
}

// seed returns the seed of a random test, and logs it: HOLDFAST_SEED, or one of its own.
func seed(t *testing.T, own uint64) uint64 {
	t.Helper()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HOLDFAST_SEED: %v", err)
		}
		own = n
	}
	t.Logf("seed %d", own)
	return own
}
