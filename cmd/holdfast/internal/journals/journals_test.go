package journals_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
)

// A URL that names no journal is refused with what there is, and a driver's options are all known or refused (G11).
func TestURLs(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ url, want string }{
		{"", "is not the URL of a journal; there are\n  cassandra:"}, {"orders", "pebble:DIR"}, {"mysql://host/db", "is not the URL of a journal"},
		{"memory:x", `memory: with "x" behind it`}, {"pebble:", "pebble: without a directory"}, {"pebble:" + dir + "?cash=1MiB", `unknown option "cash"; known are accept-loss, ballast, cache`},
		{"pebble:" + dir + "?cache=lots", `option cache: "lots" is not a size`}, {"pebble:" + dir + "?accept-loss=perhaps", "is not true or false"}, {"pebble:" + dir + "?a=%zz", "its options"},
		{"memory:?x=1", `unknown option "x"`},
		{"hbase://h/t?sinced=true", `unknown option "sinced"; known are bucket-bytes`}, {"hbase://h/t", "say synced=true in the URL"},
		{"segment:", "segment: without a directory"}, {"segment:" + dir + "?cache=1MiB", `unknown option "cache"; known are accept-loss, ballast, max-record, reserve, segment`},
		{"segment:" + dir + "?segment=lots", `option segment: "lots" is not a size`},
		{"segment:" + dir + "?segment=1KiB", "option segment: is 1KiB, want 64KiB up to 1GiB"}, {"segment:" + dir + "?max-record=-1&ballast=-2", `option ballast: "-2" is a negative size`},
		{"pebble:" + dir + "?max-record=1TiB", "option max-record: is 1TiB, want 1B up to 1GiB"}, {"segment:" + dir + "?reserve=9e9TiB", `option reserve: "9e9TiB" is too large`},
	} {
		j, err := journals.Open(t.Context(), c.url, journals.Options{Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) || j != nil {
			t.Errorf("%q: %v, want %q", c.url, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	syncs := 0
	o := journals.Options{Logger: slog.New(slog.DiscardHandler), OnSync: func(float64, int) { syncs++ }}
	for _, url := range []string{"memory:", "pebble:" + t.TempDir() + "?memtable=1MiB&cache=1MiB&reserve=1MiB&ballast=64KiB",
		"segment:" + t.TempDir() + "?segment=1MiB&reserve=1MiB&ballast=64KiB&max-record=1MiB"} {
		j, err := journals.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Acquire(context.Background(), "s"); err != nil {
			t.Error(err)
		}
		if loss := journals.Loss(j); loss != nil {
			t.Error(loss.Err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if _, err := j.Acquire(context.Background(), "s"); !errors.Is(err, journal.ErrClosed) {
			t.Error(err)
		}
	}
	if syncs == 0 {
		t.Error("no sync was told")
	}
}
