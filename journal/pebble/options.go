package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Defaults of [Options].
const (
	DefaultMemTableBytes  = 16 << 20
	DefaultCacheBytes     = 8 << 20
	DefaultMaxRecordBytes = 32 << 20
	DefaultMaxPartBytes   = 4 << 20
	DefaultMarkEvery      = 500 * time.Millisecond
)

// Options configure a [Journal]. The zero value is the default; negative values are errors.
type Options struct {
	// MemTableBytes is the size of a memtable and of a log file, in bytes. Up to two memtables and four
	// log files exist at once. 0 means DefaultMemTableBytes; on a file system of less than 20 times that it is
	// a twentieth of the file system.
	MemTableBytes int
	// CacheBytes is the size of the block cache, in bytes. 0 means DefaultCacheBytes.
	CacheBytes int
	// MaxRecordBytes and MaxPartBytes are the journal's limits, in bytes. 0 means
	// DefaultMaxRecordBytes and DefaultMaxPartBytes. At most 1 GiB.
	MaxRecordBytes, MaxPartBytes int

	// ReserveBytes is the free disk space below which records with bodies are refused with
	// journal.ErrFull. Those without, which deletes and leases are, pass until a quarter of it is left.
	// 0 means four times MemTableBytes.
	ReserveBytes int64
	// BallastBytes is the size of a file that takes up space until there is none: it is removed when
	// free space falls under half of ReserveBytes, and comes back later. 0 means half of MemTableBytes.
	BallastBytes int64

	// MarkEvery is how often the high-water mark is refreshed while something is being stored. 0
	// means DefaultMarkEvery; at most 1 s.
	MarkEvery time.Duration

	// ReadOnly opens without changing anything but the lock: every change is refused with
	// [ErrReadOnly].
	ReadOnly bool
	// AcceptLoss opens for writing although the log is shorter than it was, or the mark
	// is missing: what was lost stays lost. Without it such a store is opened for reading only.
	// The damaged log files are kept, with the extension .damaged.
	AcceptLoss bool

	// MustExist refuses a directory in which there is no journal, with an error that matches fs.ErrNotExist. By default one is made.
	MustExist bool

	// FS is the file system. nil means that of the operating system. Its GetDiskUsage
	// tells the free space.
	FS vfs.FS
	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// OnCommit is called after each sync, in the order of commits, by the goroutine that then wakes the callers; it
	// must be fast. nil means none.
	OnCommit func(Commit)
	// OnAppend is called after each append that was stored, with the time that it took. nil
	// means none.
	OnAppend func(time.Duration)

	// hook is called around every change, by the conformance suite.
	hook hook
}

// Commit describes a batch that was made durable.
type Commit struct {
	Calls   int           // changes of streams that were waiting together
	Records int           // appended records among them
	Bytes   int           // written to the log
	Sync    time.Duration // from handing over to the log until it was durable
}

func (o *Options) validate() error {
	var errs []error
	bytes := func(name string, v *int, def, most int) {
		switch {
		case *v < 0 || *v > most:
			errs = append(errs, fmt.Errorf("option %s is %d, want 0 (default %d) up to %d bytes", name, *v, def, most))
		case *v == 0:
			*v = def
		}
	}
	bytes("MemTableBytes", &o.MemTableBytes, DefaultMemTableBytes, 1<<30)
	bytes("CacheBytes", &o.CacheBytes, DefaultCacheBytes, 1<<40)
	bytes("MaxRecordBytes", &o.MaxRecordBytes, DefaultMaxRecordBytes, 1<<30)
	bytes("MaxPartBytes", &o.MaxPartBytes, DefaultMaxPartBytes, 1<<30)
	if o.ReserveBytes < 0 {
		errs = append(errs, fmt.Errorf("option ReserveBytes is %d, want 0 (default) or more", o.ReserveBytes))
	}
	if o.BallastBytes < 0 {
		errs = append(errs, fmt.Errorf("option BallastBytes is %d, want 0 (default) or more", o.BallastBytes))
	}
	if o.MarkEvery < 0 || o.MarkEvery > time.Second {
		errs = append(errs, fmt.Errorf("option MarkEvery is %v, want 0 (default %v) up to 1s", o.MarkEvery, DefaultMarkEvery))
	} else if o.MarkEvery == 0 {
		o.MarkEvery = DefaultMarkEvery
	}
	if o.ReadOnly && o.AcceptLoss {
		errs = append(errs, errors.New("options ReadOnly and AcceptLoss exclude each other"))
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if len(errs) > 0 {
		return fmt.Errorf("pebble journal: %w", errors.Join(errs...))
	}
	return nil
}

// fit adapts the sizes to the file system, whose size is 0 where it is not known.
func (o *Options) fit(total uint64) {
	if most := total / 20; total > 0 && uint64(o.MemTableBytes) > most {
		o.MemTableBytes = int(max(most, 256<<10))
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 4 * int64(o.MemTableBytes)
	}
	if o.BallastBytes == 0 {
		o.BallastBytes = int64(o.MemTableBytes) / 2
	}
}
