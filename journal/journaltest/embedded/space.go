package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// SmallDisk is a file system of 64 MiB or so, and the store on it.
type SmallDisk interface {
	// Open opens the store of the disk, which is made if there is none.
	Open() (journal.Journal, error)
	// Space tells what an open store makes of the disk.
	Space(j journal.Journal) Space
	// Free returns the free bytes.
	Free() (uint64, error)
	// Write appends n bytes to a file beside the store, durably or not.
	Write(name string, n int) error
	// Remove removes such a file.
	Remove(name string) error
}

// Space is what a store makes of its disk.
type Space struct {
	BallastBytes int64  // 0 while it is given up
	Out          bool   // all records are refused
	Reopens      uint64 // a write of the log has failed so often
}

// full is a run of TestDiskFull.
type full struct {
	*testing.T
	d SmallDisk
	j journal.Journal
	w *writer
}

// TestDiskFull proves §4 and G2: a full disk refuses sends before a write of the log fails; what has no body is still stored; space that
// acknowledgements give back is used again without a restart; a restart while full works.
func TestDiskFull(t *testing.T, d SmallDisk) {
	f := &full{T: t, d: d}
	f.open()
	f.eventually("the ballast is there", func() bool { return d.Space(f.j).BallastBytes > 0 })
	f.w = acquire(t, f.j, "q")
	sent := f.fill()
	if sent < 100 {
		t.Errorf("full after %d messages of 100 kB on a disk of 64 MiB", sent)
	}
	for range 2000 { // acknowledgements
		f.w.add(nil)
	}
	if err := f.w.s.WritePart(t.Context(), "snapshot", random(100_000)); err != nil {
		t.Fatal(err)
	}
	if s := d.Space(f.j); s.Reopens > 0 || s.Out {
		t.Errorf("after filling: %+v, want acknowledgements to be stored, and never opened again", s)
	}
	f.brim()
	f.giveBack(sent)
	mustClose(t, f.j)
}

func (f *full) open() {
	f.Helper()
	j, err := f.d.Open()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = j.Close() })
	f.j = j
}

// fill sends messages of 100 kB until the store is full, and returns how many.
func (f *full) fill() int {
	f.Helper()
	body := random(100_000)
	for n := 0; ; n++ {
		r := f.w.next([]byte("send"), body)
		if err := f.w.append(r); errors.Is(err, journal.ErrFull) {
			return n
		} else if err != nil {
			f.Fatal(err)
		}
	}
}

// brim fills the disk to the brim from outside, opens the store again, and makes room.
func (f *full) brim() {
	f.Helper()
	t := f.T
	f.takeAllBut("filler1", 100_000)
	f.eventually("the ballast is gone", func() bool { return f.d.Space(f.j).BallastBytes == 0 })
	f.takeAllBut("filler2", 100_000)
	f.eventually("all is refused", func() bool { return f.d.Space(f.j).Out })
	if err := f.w.s.Append(t.Context(), f.w.at.End, f.w.next(nil, nil)); !errors.Is(err, journal.ErrFull) {
		t.Errorf("append without a body to a disk that is full to the brim: %v, want ErrFull", err)
	}
	mustClose(t, f.j)
	f.open()
	r, err := f.j.Open(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(t.Context())
	if err != nil || info.End != f.w.at.End {
		t.Fatalf("after a restart: %+v, %v, want the end %d", info, err, f.w.at.End)
	}
	for _, err := range r.ReadMeta(t.Context(), 1, info.End) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.j.Acquire(t.Context(), "q"); err != nil && !errors.Is(err, journal.ErrFull) {
		t.Errorf("acquire after a restart while full: %v, want nil or ErrFull", err)
	}
	for _, name := range []string{"filler1", "filler2"} {
		if err := f.d.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the stream can be acquired again", func() bool {
		s, err := f.j.Acquire(t.Context(), "q")
		if err == nil {
			f.w.s, f.w.at = s, s.Acquired()
		}
		return err == nil
	})
	f.eventually("acknowledgements are stored again", func() bool { return f.w.append(f.w.next(nil, nil)) == nil })
}

// giveBack discards all bodies and sends as much again.
func (f *full) giveBack(sent int) {
	f.Helper()
	if err := f.w.s.DiscardBodies(f.Context(), []journal.Range{{From: 1, To: f.w.at.End}}); err != nil {
		f.Fatal(err)
	}
	again := 0
	f.eventually(fmt.Sprintf("there is room for %d messages again", sent*3/4), func() bool {
		again += f.fill()
		return again >= sent*3/4
	})
	if s := f.d.Space(f.j); s.Reopens > 0 {
		f.Errorf("opened again %d times: a write failed", s.Reopens)
	}
}

// takeAllBut writes a file that leaves the disk with so many bytes.
func (f *full) takeAllBut(name string, left uint64) {
	f.Helper()
	if err := f.d.Write(name, 0); err != nil { // so that it is there
		f.Fatal(err)
	}
	for {
		free, err := f.d.Free()
		if err != nil {
			f.Fatal(err)
		}
		if free <= left {
			return
		}
		if err := f.d.Write(name, int(min(1<<20, free-left))); err != nil {
			f.Fatal(err)
		}
	}
}

// eventually waits until ok is true, for a minute at most.
func (f *full) eventually(what string, ok func() bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Fatalf("not within a minute: %s", what)
		}
	}
}

// random returns bytes that do not compress.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
