package copier

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// LimitError says that records or parts of the source are larger than the target takes; nothing was copied. It matches ErrTarget.
type LimitError struct {
	// Stream and Seq tell where the largest one is; Part is its name if it is a part of a snapshot, else "".
	Stream string
	Seq    uint64
	Part   string
	// Size is what it has, and Limit what the target takes, in bytes.
	Size, Limit int
	// Count is how many there are.
	Count int
}

func (e *LimitError) Error() string {
	what := fmt.Sprintf("the record at seq %d", e.Seq)
	if e.Part != "" {
		what = fmt.Sprintf("part %q of a snapshot", e.Part)
	}
	return fmt.Sprintf("%v: it takes records and parts of up to %d bytes, and %d of the source are larger; the largest, %s of stream %q, has %d bytes",
		ErrTarget, e.Limit, e.Count, what, e.Stream, e.Size)
}

// Is makes every LimitError match ErrTarget.
func (e *LimitError) Is(target error) bool { return target == ErrTarget }

// add counts one, and keeps the largest.
func (e *LimitError) add(size, limit int, stream string, seq uint64, part string) {
	if size <= limit {
		return
	}
	e.Count++
	if size-limit > e.Size-e.Limit || e.Count == 1 {
		e.Size, e.Limit, e.Stream, e.Seq, e.Part = size, limit, stream, seq, part
	}
}

// held is what there is to store of a record, in bytes: less than Size if its body is discarded.
func held(rec *journal.Record) int {
	n := journal.HeaderSize + len(rec.Meta)
	for _, c := range rec.Body {
		n += len(c)
	}
	return n
}

// fits refuses, before anything is changed, a source with records or parts that are too large for the target: they are copied as
// they are, or not at all. A target that takes whatever the source does is not asked. What a live source writes later is refused when it comes.
func (c *job) fits(ctx context.Context, names []string) error {
	from := c.src.Limits()
	if from.MaxRecordBytes <= c.lim.MaxRecordBytes && from.MaxPartBytes <= c.lim.MaxPartBytes {
		return nil
	}
	var found LimitError
	for _, name := range names {
		if err := c.measure(ctx, name, &found); err != nil {
			return fmt.Errorf("stream %q: look for records that are too large for the target: %w", name, err)
		}
	}
	if found.Count > 0 {
		return &found
	}
	return nil
}

// measure looks at what is still to be copied of a stream.
func (c *job) measure(ctx context.Context, name string, found *LimitError) error {
	r, err := c.src.Open(ctx, name)
	if err != nil {
		return err
	}
	info, err := r.Info(ctx)
	if err != nil || info.Dropped {
		return err
	}
	there, err := (&stream{job: c, name: name}).target(ctx)
	if err != nil {
		return err
	}
	done := uint64(0)
	if there.UID == info.UID {
		done = there.End
	}
	s := &stream{job: c, name: name, r: r, damaged: map[uint64]bool{}}
	suspects, err := s.live(ctx, done, info.Low)
	if err != nil {
		return err
	}
	for rec, err := range r.ReadMeta(ctx, done+1, info.End) {
		if err != nil {
			return err
		}
		c.o.Progress(Progress{Stream: name, Measuring: true, Seq: rec.Last(), End: info.End})
		switch {
		case held(rec) > c.lim.MaxRecordBytes:
			found.add(held(rec), c.lim.MaxRecordBytes, name, rec.First, "")
		case rec.Size() > c.lim.MaxRecordBytes:
			suspects = append(suspects, rec.First) // unless its body is discarded
		}
	}
	for rec, err := range s.bodies(ctx, suspects) {
		if err != nil {
			return err
		}
		size := rec.Size()
		if rec.First < info.Low {
			size -= int(rec.MetaLen) - 4 // see bridge
		}
		found.add(size, c.lim.MaxRecordBytes, name, rec.First, "")
	}
	parts, err := s.names(ctx)
	if err != nil {
		return err
	}
	for _, part := range parts {
		data, err := r.ReadPart(ctx, part)
		if err != nil && !errors.Is(err, journal.ErrNotFound) { // it was replaced meanwhile
			return err
		}
		found.add(len(data), c.lim.MaxPartBytes, name, 0, part)
	}
	return nil
}
