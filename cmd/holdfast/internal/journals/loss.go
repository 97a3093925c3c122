package journals

import (
	"slices"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/pebble"
	"github.com/holdfastmq/holdfast/journal/segment"
)

// Lost is what a journal has found missing of what was stored.
type Lost struct {
	// Err says what is missing, as far as it is known. It matches journal.ErrCorrupt.
	Err error
	// Streams are those that lack something, and can be read and not changed, in their order. Empty: it cannot be told which they are, and none
	// can be changed.
	Streams []string
}

// Loss returns what a journal has found missing in its store, if it looks for that, or nil.
func Loss(j journal.Journal) *Lost {
	switch j := j.(type) {
	case *pebble.Journal:
		if loss := j.Loss(); loss != nil {
			return &Lost{Err: loss}
		}
	case *segment.Journal:
		loss := j.Loss()
		if loss == nil {
			return nil
		}
		l := &Lost{Err: loss}
		for i := range loss.Missing {
			if !loss.Whole {
				l.Streams = append(l.Streams, loss.Missing[i].Stream)
			}
		}
		slices.Sort(l.Streams)
		l.Streams = slices.Compact(l.Streams)
		return l
	}
	return nil
}
