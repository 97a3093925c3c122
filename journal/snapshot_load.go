package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// LoadedSnapshot tells what LoadSnapshot did.
type LoadedSnapshot struct {
	// ID is the snapshot that was restored: go on reading at ID.Seq+1. The zero value means
	// that there was none to use: start from nothing and read from seq 1, where reading begins at Info.Low by itself.
	ID SnapshotID
	// Skipped tells, newest first, of every newer snapshot why it was not used. Worth a warning.
	Skipped []error
}

// SnapshotError says that no snapshot of a stream loads, while the events that could replace them are
// discarded: the stream's state is lost. It matches ErrCorrupt.
type SnapshotError struct {
	Stream string
	Low    uint64  // the lowest seq that is still there
	Tried  []error // of each snapshot, newest first, why it does not load
}

func (e *SnapshotError) Error() string {
	s := fmt.Sprintf("stream %q: no snapshot loads, and the events below seq %d are discarded: ", e.Stream, e.Low)
	if len(e.Tried) == 0 {
		return s + "the snapshots are missing"
	}
	var tried []string
	for _, err := range e.Tried {
		tried = append(tried, err.Error())
	}
	return s + strings.Join(tried, "; ")
}

// Is makes every SnapshotError match ErrCorrupt.
func (e *SnapshotError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the causes.
func (e *SnapshotError) Unwrap() []error { return e.Tried }

// LoadSnapshot restores the newest snapshot of the stream that is intact and that the stream
// goes on from. One that does not load, or that is beyond the stream's end, or of another history than
// the stream's, is passed over for the one before it. Where none can be used, an empty state is right only if no
// event is discarded; otherwise the error is a *SnapshotError.
//
// restore gets the chunks as they were given to SaveSnapshot, in order; each belongs to it.
// It starts from scratch each time it is called: after the iterator, or restore itself, ended with an
// error, it is called again with an older snapshot. An error of restore that matches ErrNewerFormat, and
// an error of the store that is no damage (it does not answer, ctx ends), end the loading.
//
// It needs no ownership: a standby can load while the owner goes on saving.
func LoadSnapshot(ctx context.Context, r Reader, restore func(id SnapshotID, chunks iter.Seq2[[]byte, error]) error) (LoadedSnapshot, error) {
	var before []manifest
	for {
		info, err := r.Info(ctx)
		if err != nil {
			return LoadedSnapshot{}, fmt.Errorf("load snapshot: %w", err)
		}
		found, marked, err := listManifests(ctx, r)
		if err != nil {
			return LoadedSnapshot{}, fmt.Errorf("stream %q: load snapshot: %w", info.Name, err)
		}
		var res LoadedSnapshot
		for _, f := range found {
			err := loadOne(ctx, r, info, f.name(), restore, &res)
			if err == nil {
				return res, nil
			}
			if f := (*fatal)(nil); errors.As(err, &f) {
				return LoadedSnapshot{}, fmt.Errorf("stream %q: load %v: %w", info.Name, res.ID, f.err)
			}
			res.Skipped = append(res.Skipped, err)
		}
		res.ID = SnapshotID{}
		if len(found) == 0 && !marked || info.Low <= 1 {
			return res, nil
		}
		// None loads. If parts are missing because the owner has replaced the snapshots
		// meanwhile, there are others now.
		if errors.Is(errors.Join(res.Skipped...), ErrNotFound) && !slices.EqualFunc(before, found, func(a, b manifest) bool { return a.name() == b.name() }) {
			before = found
			continue
		}
		return LoadedSnapshot{}, &SnapshotError{Stream: info.Name, Low: info.Low, Tried: res.Skipped}
	}
}

// fatal is an error that ends the loading, instead of passing to an older snapshot.
type fatal struct{ err error }

func (f *fatal) Error() string { return f.err.Error() }

// loadOne restores one snapshot and sets res.ID. Its error is *fatal, or tells why that
// snapshot cannot be used.
func loadOne(ctx context.Context, r Reader, info Info, name string, restore func(SnapshotID, iter.Seq2[[]byte, error]) error, res *LoadedSnapshot) error {
	sort := func(err error) error {
		if isDamage(err) {
			return err
		}
		return &fatal{err}
	}
	m, err := readManifest(ctx, r, name)
	if err != nil {
		return sort(err)
	}
	res.ID = m.id
	if m.uid != info.UID {
		return &mismatch{m.id, fmt.Sprintf("of stream uid %s, the stream is %s", m.uid, info.UID)}
	}
	if err := continues(ctx, r, info, m.id); err != nil {
		if bad := (*mismatch)(nil); errors.As(err, &bad) {
			return err
		}
		return &fatal{err}
	}
	var readErr error
	err = restore(m.id, func(yield func([]byte, error) bool) {
		for _, c := range m.chunks {
			data, err := readChunk(ctx, r, c)
			if err != nil {
				readErr = err
				yield(nil, err)
				return
			}
			if !yield(data, nil) {
				return
			}
		}
	})
	switch {
	case readErr != nil:
		return sort(fmt.Errorf("%v: %w", m.id, readErr))
	case errors.Is(err, ErrNewerFormat), err != nil && ctx.Err() != nil:
		return &fatal{err}
	case err != nil:
		return fmt.Errorf("%v: %w", m.id, err)
	}
	return nil
}

func readChunk(ctx context.Context, r Reader, c chunk) ([]byte, error) {
	if len(c.pieces) == 0 {
		return c.inline, nil
	}
	var whole []byte
	for _, p := range c.pieces {
		data, err := r.ReadPart(ctx, p.name())
		if err != nil {
			return nil, err
		}
		if err := p.verify(data); err != nil {
			return nil, err
		}
		if len(c.pieces) == 1 {
			return data, nil
		}
		whole = append(whole, data...)
	}
	return whole, nil
}
