package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// filled is a store with some streams, and what they hold.
type filled struct {
	fs      *vfs.Mem
	records map[string][]*journal.Record // acknowledged, by stream
	marked  map[string]int               // how many of them the mark has
	batches int                          // that the mark has not
}

const filledDir = "store"

// shape says what a filled store is like.
type shape struct {
	before   int // records before a checkpoint
	marked   int // behind it, but in the mark
	unmarked int // behind the mark
	body     int // bytes, at most, squared
	closed   bool
}

// halfOpen opens a store of which nothing is written but by who asks for it.
func halfOpen(t testing.TB, fs vfs.FS) *Journal {
	t.Helper()
	j, err := open(filledDir, quiet(Options{FS: fs, SegmentBytes: 64 << 10, BallastBytes: 1}))
	if err != nil {
		t.Fatal(err)
	}
	j.loops.Add(2)
	go j.commitLoop()
	go j.completeLoop()
	return j
}

// fill makes a store. It is left as a power cut leaves it, or closed.
func fill(t testing.TB, rng *rand.Rand, s shape) *filled {
	t.Helper()
	fs := vfs.NewMem()
	f := &filled{records: map[string][]*journal.Record{}, marked: map[string]int{}, batches: s.unmarked}
	j := halfOpen(t, fs)
	writers := []*writer{acquire(t, j, "a"), acquire(t, j, "b")}
	add := func(n int) {
		for range n {
			w := writers[rng.IntN(len(writers))]
			body := make([]byte, 1+rng.IntN(s.body)*rng.IntN(s.body))
			for i := range body {
				body[i] = byte(rng.Uint32())
			}
			r := w.add(1+rng.Uint64N(5), fmt.Appendf(nil, "meta %d", w.at.End), body)
			f.records[w.at.Name] = append(f.records[w.at.Name], r)
		}
	}
	add(s.before)
	for _, w := range writers {
		if err := w.s.WritePart(t.Context(), "part", []byte("data of "+w.at.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if s.before > 0 {
		if err := j.saveCheckpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add(s.marked)
	if err := j.saveMark(false); err != nil {
		t.Fatal(err)
	}
	for name, recs := range f.records {
		f.marked[name] = len(recs)
	}
	add(s.unmarked)
	if s.closed {
		mustClose(t, j)
		for name, recs := range f.records {
			f.marked[name] = len(recs)
		}
		f.batches = 0
		f.fs = fs
		return f
	}
	f.fs = fs.Crash(0, rng)
	mustClose(t, j)
	return f
}

func (f *filled) clone() *filled {
	c := *f
	c.fs = f.fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
	return &c
}

func (f *filled) list(t testing.TB) []vfs.Info {
	t.Helper()
	all, err := f.fs.List(filledDir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *filled) read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(f.fs, filepath.Join(filledDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *filled) write(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := vfs.WriteFile(f.fs, filledDir, name, b); err != nil {
		t.Fatal(err)
	}
}

func (f *filled) open(o Options) (*Journal, error) {
	o.FS, o.SegmentBytes, o.BallastBytes = f.fs, 64<<10, 1
	return Open(filledDir, quiet(o))
}

// compare reads a stream and verifies that what it gives is what was written. It returns how many records it gave, and the error that
// ended it.
func (f *filled) compare(t testing.TB, j *Journal, name string) (int, error) {
	t.Helper()
	r, err := j.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	want := f.records[name]
	n := 0
	var ended error
	for rec, err := range r.ReadMeta(t.Context(), 1, math.MaxUint64) {
		if err != nil {
			ended = err
			break
		}
		if n >= len(want) || rec.Header != want[n].Header || !bytes.Equal(rec.Meta, want[n].Meta) {
			t.Fatalf("stream %s: record %d is %+v, which was never written there", name, n, rec.Header)
		}
		n++
	}
	for i, w := range want[:n] {
		got := 0
		for rec, err := range r.ReadBodies(t.Context(), []uint64{w.First}) {
			if err != nil {
				return i, err
			}
			got++
			if rec.Header != w.Header || !bytes.Equal(slices.Concat(rec.Body...), slices.Concat(w.Body...)) {
				t.Fatalf("stream %s: body of seq %d is not what was written", name, w.First)
			}
		}
		if got == 0 {
			t.Fatalf("stream %s: body of seq %d is silently missing", name, w.First)
		}
	}
	if ended != nil {
		return n, ended
	}
	p, err := r.ReadPart(t.Context(), "part")
	if errors.Is(err, journal.ErrNotFound) && j.Loss() != nil {
		return n, nil
	}
	if err == nil && string(p) != "data of "+name {
		t.Fatalf("stream %s: part is %q", name, p)
	}
	return n, err
}

// outcome is what a trial of damage came to.
type outcome struct {
	refused, harmless, whole, one, silent int
}

// trial opens a damaged store and judges what it says.
func (f *filled) trial(t *testing.T, what, file string, o *outcome) {
	t.Helper()
	j, err := f.open(Options{})
	if err != nil {
		o.refused++
		if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) {
			t.Fatalf("%s: open: %v, want ErrCorrupt", what, err)
		}
		if !strings.Contains(err.Error(), file) && !strings.Contains(err.Error(), "is of format") {
			t.Fatalf("%s: open: %v, does not name the file", what, err)
		}
		return
	}
	defer mustClose(t, j)
	var found []Damage
	if err := j.Verify(t.Context(), func(d Damage) { found = append(found, d) }); err != nil {
		t.Fatalf("%s: verify: %v", what, err)
	}
	hit, lost := 0, 0
	for stream, recs := range f.records {
		n, err := f.compare(t, j, stream)
		_, acq := j.Acquire(t.Context(), stream)
		switch {
		case err != nil && !errors.Is(err, journal.ErrCorrupt):
			t.Fatalf("%s: stream %s: %v, want ErrCorrupt", what, stream, err)
		case err != nil || acq != nil:
			hit++
			if len(found) == 0 {
				t.Fatalf("%s: stream %s: %v, %v, and verify finds nothing", what, stream, err, acq)
			}
		case n < f.marked[stream]:
			t.Fatalf("%s: stream %s has %d records, the mark %d, and nothing is said", what, stream, n, f.marked[stream])
		default:
			lost += len(recs) - n
		}
		if acq != nil && (!errors.Is(acq, ErrReadOnly) || !errors.Is(acq, journal.ErrCorrupt) || j.Loss() == nil) {
			t.Fatalf("%s: acquire stream %s: %v, want a LossError", what, stream, acq)
		}
	}
	switch {
	case hit == len(f.records):
		o.whole++
	case hit > 0:
		o.one++
	case lost > 0:
		if o.silent++; lost > 1 {
			t.Fatalf("%s: %d records vanished silently, want the last one at most", what, lost)
		}
	default:
		o.harmless++
	}
}

// places calls f with places of a file: all of them at full counts, and else some.
func places(rng *rand.Rand, size int, f func(at int)) {
	if soak > 1 {
		for at := range size {
			f(at)
		}
		return
	}
	for range 25 {
		f(rng.IntN(size))
	}
}

// used returns how many bytes of a file are not zeros at its end.
func used(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }

// §4, G2: a flipped or missing byte, at every place of every file of a store that a power cut or Close has left: it is told, or harms
// nothing, or hits the last record before a power cut that the mark does not have.
func TestDamageEverywhere(t *testing.T) {
	s := seed(t, 42)
	for i, sh := range []shape{
		{before: 6, marked: 8, unmarked: 3, body: 20}, {marked: 12, body: 20}, {before: 10, marked: 5, closed: true, body: 20},
		{before: 4, marked: 4, unmarked: 1, body: 200},
	} {
		f := fill(t, rand.New(rand.NewPCG(s, uint64(i))), sh)
		for _, info := range f.list(t) {
			if info.Name == lockName || info.Name == ownerName || info.Name == ballastName || info.Size == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s", i, info.Name), func(t *testing.T) { f.damageEverywhere(t, info.Name, rand.New(rand.NewPCG(s, s))) })
		}
	}
}

// damageEverywhere damages a file of a store in many ways.
func (f *filled) damageEverywhere(t *testing.T, name string, rng *rand.Rand) {
	b := f.read(t, name)
	var o outcome
	places(rng, min(used(b)+600, len(b)), func(at int) {
		c := f.clone()
		x := slices.Clone(b)
		x[at] ^= 1 << rng.IntN(8)
		c.write(t, name, x)
		c.trial(t, fmt.Sprintf("%s, byte %d of %d flipped", name, at, len(b)), name, &o)
		c = f.clone()
		c.write(t, name, slices.Delete(slices.Clone(b), at, at+1))
		c.trial(t, fmt.Sprintf("%s, byte %d of %d missing", name, at, len(b)), name, &o)
	})
	c := f.clone()
	if err := c.fs.Remove(filepath.Join(filledDir, name)); err != nil {
		t.Fatal(err)
	}
	c.trial(t, name+" removed", name, &o)
	t.Logf("%d bytes: %+v", len(b), o)
}

// §4: a loss can be accepted, and the store goes on with what there is; the damaged file is kept. A stream that lacks nothing needs no
// acceptance.
func TestAcceptLoss(t *testing.T) {
	f := fill(t, rand.New(rand.NewPCG(7, 7)), shape{before: 10, marked: 30, body: 20})
	// The entry of a record that the mark has, behind the checkpoint.
	name, at := f.find(t, f.records["a"][f.marked["a"]-3])
	b := f.read(t, name)
	b[at+5] ^= 4
	f.write(t, name, b)
	j, err := f.open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	loss := j.Loss()
	if loss == nil || len(loss.Missing) != 1 || loss.Missing[0].Stream != "a" || !strings.Contains(loss.Error(), name) {
		t.Fatalf("loss: %v, want one that names %s and stream a", loss, name)
	}
	last := f.records["a"][f.marked["a"]-1]
	if m := loss.Missing[0]; m.To != last.Last() || m.From != f.records["a"][f.marked["a"]-3].First {
		t.Errorf("missing: %+v, want up to seq %d", m, last.Last())
	}
	if _, err := j.Acquire(t.Context(), "a"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("acquire stream a in spite of its loss: %v", err)
	}
	w := acquire(t, j, "b")
	f.records["b"] = append(f.records["b"], w.add(1, []byte("beside"), []byte("a loss")))
	end := loss.Missing[0].From - 1
	mustClose(t, j)
	// The loss is not forgotten by a checkpoint, a mark and a restart.
	if j, err = f.open(Options{}); err != nil || j.Loss() == nil {
		t.Fatalf("open again: %v, want the loss", err)
	}
	mustClose(t, j)
	if j, err = f.open(Options{AcceptLoss: true}); err != nil || j.Loss() != nil {
		t.Fatalf("accept: %v", err)
	}
	w = acquire(t, j, "a")
	if w.at.End != end {
		t.Errorf("stream a ends at %d, want %d", w.at.End, end)
	}
	f.records["a"] = slices.DeleteFunc(f.records["a"], func(r *journal.Record) bool { return r.First > end })
	f.records["a"] = append(f.records["a"], w.add(1, []byte("new"), []byte("body")))
	mustClose(t, j)
	if j, err = f.open(Options{}); err != nil || j.Loss() != nil {
		t.Fatalf("open again: %v, %v", err, j.Loss())
	}
	for stream, recs := range f.records {
		if n, err := f.compare(t, j, stream); err != nil || n != len(recs) {
			t.Errorf("stream %s: %d records of %d, %v", stream, n, len(recs), err)
		}
	}
	mustClose(t, j)
}

// find returns where a record's header is.
func (f *filled) find(t *testing.T, r *journal.Record) (string, int) {
	t.Helper()
	h := journal.AppendHeader(nil, &r.Header)
	for _, i := range f.list(t) {
		if at := bytes.Index(f.read(t, i.Name), h); at >= 0 && strings.HasSuffix(i.Name, segExt) {
			return i.Name, at
		}
	}
	t.Fatalf("the record of seq %d is in no file", r.First)
	return "", 0
}

// §4: one of the two files of the mark may be torn; without both, nothing is taken for sure.
func TestDamagedMark(t *testing.T) {
	f := fill(t, rand.New(rand.NewPCG(8, 8)), shape{before: 5, marked: 20, body: 20})
	for _, name := range markFiles {
		b := f.read(t, name)
		b[20] ^= 1
		f.write(t, name, b)
	}
	j, err := f.open(Options{})
	if err != nil || j.Loss() == nil {
		t.Fatalf("both files of the mark damaged: %v, want a loss", err)
	}
	if _, err := j.Acquire(t.Context(), "a"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("acquire in spite of %v: %v", j.Loss(), err)
	}
	mustClose(t, j)
	if j, err = f.open(Options{AcceptLoss: true}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	if j, err = f.open(Options{}); err != nil || j.Loss() != nil {
		t.Fatalf("after the loss was accepted: %v, %v", err, j.Loss())
	}
	for stream, recs := range f.records {
		if n, err := f.compare(t, j, stream); err != nil || n != len(recs) {
			t.Errorf("stream %s: %d records of %d, %v", stream, n, len(recs), err)
		}
	}
	mustClose(t, j)
}
