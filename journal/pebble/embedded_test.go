package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/embedded"
)

// directory is the driver as the suites of embedded journals see it.
var directory = embedded.Directory{
	Open: func(dir string, o embedded.Options) (journal.Journal, error) {
		return Open(dir, quiet(Options{ReadOnly: o.ReadOnly, MustExist: o.MustExist, AcceptLoss: o.AcceptLoss}))
	},
	Verify: func(ctx context.Context, dir string) error {
		return Verify(ctx, dir, quiet(Options{}), func(Damage) {})
	},
	Format: formatName, Newer: []byte(formatPrefix + "2\n"),
}

// §4: one process per directory.
func TestSecondProcessIsRefused(t *testing.T) { embedded.TestSecondProcess(t, &directory) }

// §4: inside one process too.
func TestSecondOpenInProcessIsRefused(t *testing.T) { embedded.TestSecondOpen(t, &directory) }

// §3: a store of a newer format is refused and not touched.
func TestNewerFormat(t *testing.T) { embedded.TestNewerFormat(t, &directory) }

// G11: a mistyped directory does not become a store where one must exist.
func TestMustExist(t *testing.T) { embedded.TestMustExist(t, &directory) }

// crashDisk is a file system in memory that can be crashed.
type crashDisk struct{ fs *vfs.MemFS }

func newDisk() embedded.Disk { return &crashDisk{vfs.NewCrashableMem()} }

func (d *crashDisk) Open(rng *rand.Rand, before func(sync, changes bool)) (journal.Journal, error) {
	var fs vfs.FS = d.fs
	if before != nil {
		fs = errorfs.Wrap(d.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			k := op.Kind
			before(k == errorfs.OpFileSync || k == errorfs.OpFileSyncData || k == errorfs.OpFileSyncTo, k.ReadOrWrite() == errorfs.OpIsWrite)
			return nil
		}))
	}
	j, err := Open("store", quiet(Options{
		FS: fs, MemTableBytes: 128<<10 + rng.IntN(512<<10), MaxPartBytes: 2048 + rng.IntN(16<<10), MaxRecordBytes: 4 << 20,
	}))
	if err != nil {
		return nil, err
	}
	if loss := j.Loss(); loss != nil {
		return nil, loss
	}
	return j, nil
}

func (d *crashDisk) Crash(percent int, rng *rand.Rand) embedded.Disk {
	return &crashDisk{d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})}
}

// §12: a power cut under a broker, at any operation of the file system.
func TestQueuePowerCut(t *testing.T) { embedded.TestPowerCut(t, newDisk) }

// §4: a power cut while survivors are stored anew.
func TestQueuePowerCutRelocating(t *testing.T) { embedded.TestPowerCutRelocating(t, newDisk) }

// fullDisk is a file system that becomes full.
type fullDisk struct {
	fs  vfs.FS
	dir string
}

func (d *fullDisk) Open() (journal.Journal, error) {
	return Open(d.fs.PathJoin(d.dir, "store"), quiet(Options{FS: d.fs}))
}

func (d *fullDisk) Space(j journal.Journal) embedded.Space {
	m := j.(*Journal).Metrics()
	return embedded.Space{BallastBytes: m.BallastBytes, Out: m.Out, Reopens: m.Reopens}
}

func (d *fullDisk) Free() (uint64, error) {
	u, err := d.fs.GetDiskUsage(d.dir)
	return u.AvailBytes, err
}

func (d *fullDisk) Write(name string, n int) error {
	f, err := d.fs.OpenReadWrite(d.fs.PathJoin(d.dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, n), info.Size())
	}
	return errors.Join(err, f.Close())
}

func (d *fullDisk) Remove(name string) error { return d.fs.Remove(d.fs.PathJoin(d.dir, name)) }

// §4, G2: a full disk, counted and, where the test may mount one, real.
func TestDiskFull(t *testing.T) {
	for name, disk := range disks(t, 64<<20) {
		t.Run(name, func(t *testing.T) {
			fs, dir := disk(t)
			embedded.TestDiskFull(t, &fullDisk{fs, dir})
		})
	}
}

func openBench(dir string) (journal.Journal, error) {
	j, err := Open(dir, quiet(Options{}))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return j, nil
}

func BenchmarkQueueSend(b *testing.B)      { embedded.BenchmarkSend(b, openBench) }
func BenchmarkQueueSendAsync(b *testing.B) { embedded.BenchmarkSendAsync(b, openBench) }
func BenchmarkQueuePipeline(b *testing.B)  { embedded.BenchmarkPipeline(b, openBench) }
func BenchmarkQueueSingle(b *testing.B) {
	embedded.BenchmarkSingle(b, openBench, func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) })
}
