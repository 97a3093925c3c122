package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// Defaults of [Options].
const (
	DefaultSegmentBytes   = 64 << 20
	DefaultMaxRecordBytes = 32 << 20
	DefaultMaxPartBytes   = 4 << 20
	DefaultMarkEvery      = 500 * time.Millisecond
)

// Options configure a [Journal]. The zero value is the default; negative values are errors.
type Options struct {
	// SegmentBytes is how large a file of the log becomes, in bytes. 0 means DefaultSegmentBytes; at least 64 KiB, at most
	// 1 GiB. On a file system of less than 20 times that it is a twentieth of the file system.
	SegmentBytes int
	// MaxRecordBytes and MaxPartBytes are the journal's limits, in bytes. 0 means DefaultMaxRecordBytes and
	// DefaultMaxPartBytes. At most 1 GiB.
	MaxRecordBytes, MaxPartBytes int

	// ReserveBytes is the free disk space below which records with bodies are refused with journal.ErrFull. Those
	// without, which deletes and leases are, pass until a quarter of it is left. 0 means SegmentBytes.
	ReserveBytes int64
	// BallastBytes is the size of a file that takes up space until there is none: it is removed when free space falls under half of
	// ReserveBytes, and comes back later. 0 means an eighth of SegmentBytes.
	BallastBytes int64

	// MarkEvery is how often the high-water mark is refreshed while something is being stored. 0 means DefaultMarkEvery; at
	// most 1 s.
	MarkEvery time.Duration

	// MustExist refuses a directory in which there is no journal, with an error that matches fs.ErrNotExist. By default one is made.
	MustExist bool
	// ReadOnly opens without changing anything but the lock: every change is refused with [ErrReadOnly].
	ReadOnly bool
	// AcceptLoss opens for writing although stored data is missing: what was lost stays lost, and streams end before it. The
	// damaged segments are kept, with the extension .damaged.
	AcceptLoss bool

	// FS is the file system. nil means that of the operating system.
	FS vfs.FS
	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// OnCommit is called after each sync, in the order of commits, by the goroutine that then wakes the callers; it must be
	// fast. nil means none.
	OnCommit func(Commit)
	// OnAppend is called after each append that was stored, with the time that it took. nil means none.
	OnAppend func(time.Duration)

	// hook is called around every change, by the conformance suite.
	hook hook
}

// Commit describes what one sync made durable.
type Commit struct {
	Calls   int           // changes of streams that were waiting together
	Records int           // appended records among them
	Bytes   int           // written to the log
	Sync    time.Duration // from writing the first of it until it was durable
}

func (o *Options) validate() error {
	var errs []error
	size := func(name string, v *int, def, least, most int) {
		switch {
		case *v == 0:
			*v = def
		case *v < least || *v > most:
			errs = append(errs, fmt.Errorf("option %s is %d, want 0 (default %d), or %d up to %d bytes", name, *v, def, least, most))
		}
	}
	size("SegmentBytes", &o.SegmentBytes, DefaultSegmentBytes, 64<<10, 1<<30)
	size("MaxRecordBytes", &o.MaxRecordBytes, DefaultMaxRecordBytes, 1, 1<<30)
	size("MaxPartBytes", &o.MaxPartBytes, DefaultMaxPartBytes, 1, 1<<30)
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
		o.FS = vfs.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// fit adapts the sizes to the file system, whose size is 0 where it is not known.
func (o *Options) fit(total uint64) {
	if most := total / 20; total > 0 && uint64(o.SegmentBytes) > most {
		o.SegmentBytes = int(alignUp(int64(max(most, 256<<10)), pageSize))
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = int64(o.SegmentBytes)
	}
	if o.BallastBytes == 0 {
		o.BallastBytes = int64(o.SegmentBytes) / 8
	}
}
