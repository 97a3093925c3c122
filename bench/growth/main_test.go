package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each value is measured by a run of its own with the flags of the series, and what a report does not have is a dash.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "bench")
	const script = `#!/bin/sh
echo "$@" >> "$0.args"
echo '{"figures": [{"name": "sent and acknowledged", "median": 1234567.8}, {"name": "broker processor time a message", "median": 250}]}'
`
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := series{title: "window", work: "send", fixed: []string{"--x"}, values: []string{"1", "10"}, columns: []column{columnSent, columnBroker, columnMemory},
		flags: func(value string) []string { return []string{"--window", value} }}
	var b strings.Builder
	if err := measure(t.Context(), &b, binary, "there", 3*time.Second, s); err != nil {
		t.Fatal(err)
	}
	if want := "| 1 | 1234568 | 0.25 µs | – |\n| 10 | 1234568 | 0.25 µs | – |\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %s, want %s", b.String(), want)
	}
	args, err := os.ReadFile(binary + ".args")
	if want := "bench send --dir there --no-ceilings --output json --x --duration 3s --warmup 1s --window 1\n"; err != nil || !strings.HasPrefix(string(args), want) {
		t.Errorf("%v: called with %s, want %s", err, args, want)
	}
}

// A run that fails ends it, with what bench was asked for.
func TestMeasureFails(t *testing.T) {
	err := measure(t.Context(), &strings.Builder{}, filepath.Join(t.TempDir(), "none"), ".", time.Second, all()[0])
	if err == nil || !strings.Contains(err.Error(), "bench pipeline") {
		t.Error(err)
	}
}
