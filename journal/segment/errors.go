package segment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// ErrReadOnly says that the store, or the stream, is open for reading only: by [Options.ReadOnly], or because of a loss
// (see [LossError]).
var ErrReadOnly = errors.New("store is open for reading only")

// LossError says that what was on stable storage is missing. It matches journal.ErrCorrupt and ErrReadOnly. What is there can be read; changes
// are refused with this error until the store is opened with [Options.AcceptLoss]: of the streams that are hit where that can be
// told, and of all where not.
type LossError struct {
	// What was found, with the file.
	What string
	// Missing names what is missing of which stream, as far as it is known.
	Missing []Missing
	// Whole says that all streams are closed for changes, since it cannot be told which ones lack something. Otherwise only those in Missing are.
	Whole bool
}

// Missing is a range of seqs that was stored and is not there. Where From is behind To, it is no record that is missing but another
// change: a part, an epoch.
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
		if m.From > m.To {
			fmt.Fprintf(&b, "; stream %q: changes behind seq %d", m.Stream, m.From-1)
			continue
		}
		fmt.Fprintf(&b, "; stream %q: seqs %d…%d", m.Stream, m.From, m.To)
	}
	return b.String()
}

// Is makes every LossError match journal.ErrCorrupt and ErrReadOnly.
func (e *LossError) Is(target error) bool {
	return target == journal.ErrCorrupt || target == ErrReadOnly
}

// damagedFile says that a file of the store, not of one stream, is damaged.
func damagedFile(name, what string, err error) error {
	return &journal.CorruptError{What: fmt.Sprintf("file %s: %s", name, what), Err: err}
}
