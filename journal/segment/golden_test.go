package segment

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// A golden store is what a released version left at a power cut: a checkpoint, segments and a mark. Those
// of all formats that were ever released stay, and have to be readable.
var writeGolden = flag.Bool("golden", false, "write testdata/golden-N anew, of the present format")

const goldenRecords = 40

// goldenRecord is the n-th record of a golden store's stream "orders", but for what depends on the owner.
func goldenRecord(n int) (count uint64, meta, body []byte) {
	return uint64(1 + n%3), fmt.Appendf(nil, "meta %d", n), bytes.Repeat(fmt.Appendf(nil, "body %d ", n), n%7*20)
}

func goldenDir(format int) string { return filepath.Join("testdata", fmt.Sprintf("golden-%d", format)) }

func TestWriteGolden(t *testing.T) {
	if !*writeGolden {
		return // only on demand: it replaces what was released
	}
	fs := vfs.NewMem()
	j := halfOpen(t, fs)
	gone := acquire(t, j, "dropped")
	gone.add(5, nil, []byte("gone"))
	if err := gone.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := acquire(t, j, "orders")
	for n := range goldenRecords {
		switch n {
		case goldenRecords / 4:
			if err := j.saveCheckpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		case goldenRecords / 2: // a new owner, and another segment
			if err := j.empty(t.Context(), j.active); err != nil {
				t.Fatal(err)
			}
			w = acquire(t, j, "orders")
		}
		w.add(goldenRecord(n))
	}
	if err := w.s.WritePart(t.Context(), "c/one", []byte("part")); err != nil {
		t.Fatal(err)
	}
	if err := w.s.DiscardMeta(t.Context(), 4); err != nil { // records 0 and 1
		t.Fatal(err)
	}
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: 6}}); err != nil { // and 2
		t.Fatal(err)
	}
	w.add(1, []byte("last"), []byte("carries the discards"))
	if err := j.saveMark(false); err != nil {
		t.Fatal(err)
	}
	left := fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
	mustClose(t, j)
	dir := goldenDir(formatVersion)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	all, err := left.List(filledDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == lockName || i.Name == ownerName || i.Name == ballastName {
			continue
		}
		b, err := vfs.ReadFile(left, filepath.Join(filledDir, i.Name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, i.Name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// §3: stores of every released format can be read.
func TestGolden(t *testing.T) {
	for format := 1; format <= formatVersion; format++ {
		for _, o := range []Options{{ReadOnly: true}, {}} {
			dir := filepath.Join(t.TempDir(), "store")
			if err := os.CopyFS(dir, os.DirFS(goldenDir(format))); err != nil {
				t.Fatal(err)
			}
			o.SegmentBytes = 64 << 10
			j := mustOpen(t, dir, o)
			checkGolden(t, j)
			if err := j.Verify(t.Context(), func(d Damage) { t.Errorf("format %d: %v", format, d) }); err != nil {
				t.Error(err)
			}
			mustClose(t, j)
		}
	}
}

func checkGolden(t *testing.T, j *Journal) {
	t.Helper()
	infos := map[string]journal.Info{}
	for info, err := range j.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		infos[info.Name] = info
	}
	d, o := infos["dropped"], infos["orders"]
	if len(infos) != 2 || !d.Dropped || d.End != 5 || d.Epoch != 1 || o.Dropped || o.Epoch != 2 || o.Low != 4 {
		t.Fatalf("streams: %+v", infos)
	}
	r, err := j.Open(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	n := 2
	for rec, err := range r.ReadMeta(t.Context(), 1, o.End) {
		if err != nil {
			t.Fatal(err)
		}
		count, meta, body := goldenRecord(n)
		if n == goldenRecords {
			count, meta, body = 1, []byte("last"), []byte("carries the discards")
		}
		if rec.Count != count || !bytes.Equal(rec.Meta, meta) || rec.VerifyBody(body) != nil {
			t.Fatalf("record %d: %+v, %q", n, rec.Header, rec.Meta)
		}
		found := false
		for b, err := range r.ReadBodies(t.Context(), []uint64{rec.First}) {
			found = err == nil && bytes.Equal(bytes.Join(b.Body, nil), body)
		}
		if want := n != 2 && len(body) > 0; found != want {
			t.Errorf("body of record %d is there: %v, want %v", n, found, want)
		}
		n++
	}
	if n != goldenRecords+1 {
		t.Errorf("%d records, want %d", n, goldenRecords+1)
	}
	if p, err := r.ReadPart(t.Context(), "c/one"); err != nil || string(p) != "part" {
		t.Errorf("part: %q, %v", p, err)
	}
}
