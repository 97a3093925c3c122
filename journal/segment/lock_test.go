package segment

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// §3: what is not a store, or only half of one, is told from an empty directory.
func TestNoStore(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := Open("none", quiet(Options{FS: fs, ReadOnly: true})); err == nil {
		t.Errorf("a store that does not exist was opened for reading")
	}
	j := mustOpen(t, "store", Options{FS: fs})
	acquire(t, j, "q")
	mustClose(t, j)
	if err := fs.Remove("store/" + formatName); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("store", quiet(Options{FS: fs})); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), formatName) {
		t.Errorf("a store without FORMAT: %v, want ErrCorrupt and the name of the file", err)
	}
}

// G11: all faults of the options are told together.
func TestOptionsAreChecked(t *testing.T) {
	_, err := Open("store", Options{FS: vfs.NewMem(), SegmentBytes: -1, MaxRecordBytes: -1, MaxPartBytes: 2 << 30,
		ReserveBytes: -1, BallastBytes: -1, MarkEvery: -1, ReadOnly: true, AcceptLoss: true})
	for _, name := range []string{"SegmentBytes", "MaxRecordBytes", "MaxPartBytes", "ReserveBytes", "BallastBytes", "MarkEvery", "ReadOnly"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: does not name %s", err, name)
		}
	}
}

// G11: a store that is open for reading refuses every change and reads.
func TestReadOnly(t *testing.T) {
	fs := vfs.NewMem()
	j := mustOpen(t, "store", Options{FS: fs})
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, []byte("meta"), []byte("body"))}
	mustClose(t, j)
	j = mustOpen(t, "store", Options{FS: fs, ReadOnly: true})
	if _, err := j.Acquire(t.Context(), "q"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("acquire: %v, want ErrReadOnly", err)
	}
	verifyStream(t, j, "q", want)
	mustClose(t, j)
	j = mustOpen(t, "store", Options{FS: fs})
	verifyStream(t, j, "q", want)
	mustClose(t, j)
}

// G11: a directory, or file system, that cannot be written to is named in one clear sentence, and can still be read.
func TestDirectoryNotWritable(t *testing.T) {
	for _, cause := range []error{os.ErrPermission, syscall.EROFS} {
		f := newFailing()
		mustClose(t, mustOpen(t, "store", Options{FS: f}))
		f.next(&os.PathError{Op: "open", Path: ownerName, Err: cause}, opOn("create", ownerName))
		_, err := Open("store", quiet(Options{FS: f}))
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "directory store cannot be written to") {
			t.Errorf("%v: open: %v", cause, err)
		}
		f.next(cause, opOn("create", ownerName))
		mustClose(t, mustOpen(t, "store", Options{FS: f, ReadOnly: true}))
	}
}

// A store that is opened and closed often goes on in the segment where it was, and does not grow by it.
func TestOpenedOften(t *testing.T) {
	fs := vfs.NewMem()
	var want []*journal.Record
	for range 20 {
		j := mustOpen(t, "store", Options{FS: fs})
		want = append(want, acquire(t, j, "q").add(1, []byte("meta"), []byte("body")))
		mustClose(t, j)
	}
	all, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, i := range all {
		if strings.HasSuffix(i.Name, segExt) {
			segments++
		}
	}
	if segments > 2 {
		t.Errorf("%d segments", segments)
	}
	j := mustOpen(t, "store", Options{FS: fs})
	verifyStream(t, j, "q", want)
}
