package journals_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
)

// makeStore makes a store of a scheme in a directory, with one stream.
func makeStore(t *testing.T, scheme, dir string) {
	t.Helper()
	j, err := journals.Open(t.Context(), scheme+":"+dir, journals.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Acquire(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// state returns everything that can be seen of a directory: names, contents, modes and times.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = fmt.Sprintf("%v %v %x", info.Mode(), info.ModTime(), b)
	}
	return all
}

// G11: a directory with an embedded journal of another kind is refused, untouched, with what is there and the URL that fits.
func TestOtherKind(t *testing.T) {
	for _, c := range []struct{ there, asked, says string }{
		{"pebble", "segment", "holds a Pebble store, not a segment log: use pebble:"}, {"segment", "pebble", "holds a segment log, not a Pebble store: use segment:"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		makeStore(t, c.there, dir)
		before := state(t, dir)
		for _, o := range []journals.Options{{}, {ReadOnly: true}, {MustExist: true}} {
			o.Logger = slog.New(slog.DiscardHandler)
			j, err := journals.Open(t.Context(), c.asked+":"+dir+"?reserve=1MiB", o)
			var kind *journals.KindError
			if j != nil || !errors.As(err, &kind) || !errors.Is(err, journals.ErrURL) || !strings.Contains(err.Error(), dir+" "+c.says+dir) {
				t.Errorf("%s on %s: %v", c.asked, c.there, err)
			}
		}
		if !maps.Equal(before, state(t, dir)) {
			t.Errorf("%s on %s: the directory was changed", c.asked, c.there)
		}
		// What was refused can still be opened as what it is.
		makeStore(t, c.there, dir)
	}
}

// The default is what is there, and else the segment log.
func TestDefault(t *testing.T) {
	base := t.TempDir()
	for _, there := range []string{"", "empty", "segment", "pebble", "pebble, half made", "segment, half made", "newer"} {
		dir := filepath.Join(base, strings.ReplaceAll(there, " ", "-")+"x")
		want := "segment:" + dir
		switch scheme, half, _ := strings.Cut(there, ","); {
		case there == "empty":
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		case there == "newer":
			want = "pebble:" + dir
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "FORMAT"), []byte("holdfast pebble journal, format 99\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		case there != "":
			makeStore(t, scheme, dir)
			if half != "" { // FORMAT is written last
				if err := os.Remove(filepath.Join(dir, "FORMAT")); err != nil {
					t.Fatal(err)
				}
			}
			want = scheme + ":" + dir
		}
		url, move, err := journals.Default(dir)
		if url != want || err != nil {
			t.Errorf("%q: %q, %v", there, url, err)
		}
		copyTo := "journal copy pebble:" + dir + " segment:" + dir + "-segment"
		if pebble := strings.HasPrefix(want, "pebble"); pebble != strings.Contains(move, copyTo) || !pebble && move != "" || strings.Contains(move, "\n") {
			t.Errorf("%q: says %q", there, move)
		}
	}
	// What is no directory is told, not taken for an empty one.
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if url, _, err := journals.Default(file); err == nil {
		t.Errorf("a file: %q", url)
	}
}
