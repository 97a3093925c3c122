package pebble

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfastmq/holdfast/journal"
)

// §3: what is not a store, or only half of one, is told from an empty directory.
func TestNoStore(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := Open("none", quiet(Options{FS: fs, ReadOnly: true})); err == nil {
		t.Errorf("a store that does not exist was opened for reading")
	}
	mustClose(t, mustOpen(t, "store", Options{FS: fs}))
	if err := fs.Remove("store/" + formatName); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("store", quiet(Options{FS: fs})); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), formatName) {
		t.Errorf("a store without FORMAT: %v, want ErrCorrupt and the name of the file", err)
	}
}

// G11: a directory, or file system, that cannot be written to is named in one clear sentence, and can still be read.
func TestDirectoryNotWritable(t *testing.T) {
	for _, cause := range []error{os.ErrPermission, syscall.EROFS} {
		f := newFailing(vfs.NewMem())
		mustClose(t, mustOpen(t, "store", Options{FS: f}))
		f.next(&os.PathError{Op: "open", Path: ownerName, Err: cause}, opOn(errorfs.OpCreate, ownerName))
		_, err := Open("store", quiet(Options{FS: f}))
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "directory store cannot be written to") {
			t.Errorf("%v: open: %v", cause, err)
		}
		f.next(cause, opOn(errorfs.OpCreate, ownerName))
		mustClose(t, mustOpen(t, "store", Options{FS: f, ReadOnly: true}))
	}
}
