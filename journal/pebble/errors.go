package pebble

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// ErrReadOnly says that the store is open for reading only: by [Options.ReadOnly], or
// because of a loss (see [LossError]).
var ErrReadOnly = errors.New("store is open for reading only")

// LossError says that what was on stable storage is missing: the log ends before the
// high-water mark. It matches journal.ErrCorrupt and ErrReadOnly. The store can be read; every
// change is refused with this error until it is opened with [Options.AcceptLoss].
type LossError struct {
	// What was found, with the file.
	What string
	// Missing names what is known to be missing of which stream. Changes that are not of this list (parts,
	// epochs) may be missing too.
	Missing []Missing
}

// Missing is a range of seqs that was stored and is not there.
type Missing struct {
	Stream   string
	From, To uint64
}

func (e *LossError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stored data is missing: %s", e.What)
	for i, m := range e.Missing {
		if i == 20 {
			fmt.Fprintf(&b, "; and of %d more streams", len(e.Missing)-i)
			break
		}
		fmt.Fprintf(&b, "; stream %q: seqs %d…%d", m.Stream, m.From, m.To)
	}
	return b.String()
}

// Is makes every LossError match journal.ErrCorrupt and ErrReadOnly.
func (e *LossError) Is(target error) bool {
	return target == journal.ErrCorrupt || target == ErrReadOnly
}

// errReopened is what a read gets that lost its engine. The read may be repeated.
var errReopened = errors.New("the store was reopened after an I/O error, repeat the read")

// damagedFile says that a file of the store, not of one stream, is damaged.
func damagedFile(name, what string, err error) error {
	return &journal.CorruptError{What: fmt.Sprintf("file %s: %s", name, what), Err: oneLine(err)}
}

// oneLine drops the details that errors of the engine carry in further lines.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	if line, _, more := strings.Cut(err.Error(), "\n"); more {
		return &shortError{err, line}
	}
	return err
}

type shortError struct {
	err  error
	line string
}

func (e *shortError) Error() string { return e.line }
func (e *shortError) Unwrap() error { return e.err }

// isDamage tells whether the engine's error says that a file is damaged or missing.
func isDamage(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, os.ErrNotExist)
}

// readError turns an error of the engine, met while reading a stream at seq, into one
// of the contract.
func (e *engine) readError(stream string, seq uint64, what string, err error) error {
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return err
	case e.g.alive() != nil, e.standIn:
		return fmt.Errorf("%s: %w: %w", what, errReopened, oneLine(err))
	case isDamage(err), errors.Is(err, journal.ErrCorrupt):
		return &journal.CorruptError{Stream: stream, Seq: seq, What: what, Err: oneLine(err)}
	}
	return fmt.Errorf("%s: %w", what, oneLine(err))
}
