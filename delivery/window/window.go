package window

import "strconv"

// Outcome is what a window knows of a sequence number.
type Outcome uint8

const (
	// Fresh means never seen, or seen and given up (the handler failed): to be handled.
	Fresh Outcome = iota + 1
	// InProgress means accepted and not settled, waiting or running: neither handled again nor acknowledged.
	InProgress
	// Known means settled: acknowledged again, not handled.
	Known
)

// String returns the outcome as a lower-case word.
func (o Outcome) String() string {
	switch o {
	case Fresh:
		return "fresh"
	case InProgress:
		return "in progress"
	case Known:
		return "known"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Window is the dedup state of one incarnation of one producer: everything up to contiguous is settled, and
// above it the settled numbers and those in progress, each in a set of at most MaxWindow.
//
// A Window belongs to the Table that made it. Once the table has dropped it, it changes no more: whoever
// still holds it can ask Dropped, and a Settle marks nothing.
type Window struct {
	// Owner is whatever the table's owner wants to keep with the window. The package does not touch it.
	Owner any

	key        *Key // apart from the window, for those who keep only the key
	contiguous uint64
	above      Bits
	progress   Bits
	// unsettled counts the accepted and not yet settled. It can exceed progress.Len: the floor may pass a
	// number whose handler still runs (the producer had it acknowledged before this window was made).
	unsettled int
	used      int64
	entry     *entry
	dropped   bool
}

// Key returns the producer id and incarnation that the window is of. It does not change; who keeps it does not keep the
// window.
func (w *Window) Key() *Key { return w.key }

// Contiguous returns the number up to which everything is settled, 0 if nothing is.
func (w *Window) Contiguous() uint64 { return w.contiguous }

// Above returns how many numbers above Contiguous are settled.
func (w *Window) Above() int { return w.above.Len() }

// Unsettled returns how many numbers were accepted and are not settled.
func (w *Window) Unsettled() int { return w.unsettled }

// Dropped reports whether the table has let go of the window.
func (w *Window) Dropped() bool { return w.dropped }

// NextAbove returns the lowest settled number that is above Contiguous and at least from.
func (w *Window) NextAbove(from uint64) (seq uint64, ok bool) { return w.above.NextSet(from) }

// NextInProgress returns the lowest number in progress that is above Contiguous and at least from.
func (w *Window) NextInProgress(from uint64) (seq uint64, ok bool) { return w.progress.NextSet(from) }

// Outcome says what is known of seq.
func (w *Window) Outcome(seq uint64) Outcome {
	switch {
	case seq <= w.contiguous || w.above.Has(seq):
		return Known
	case w.progress.Has(seq):
		return InProgress
	}
	return Fresh
}

// raise settles everything up to contiguous.
func (w *Window) raise(contiguous uint64) {
	if contiguous <= w.contiguous {
		return
	}
	w.contiguous = w.above.NextClear(contiguous+1) - 1
	w.above.Advance(w.contiguous + 1)
	w.progress.Advance(w.contiguous + 1)
}

// mark settles seq.
func (w *Window) mark(seq uint64) {
	switch {
	case seq <= w.contiguous:
	case seq == w.contiguous+1:
		w.raise(seq)
	default:
		w.above.Set(seq)
		w.progress.Clear(seq)
	}
}
