package copier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// maxListings bounds how often the parts are listed, of a source that changes them at the same time.
const maxListings = 50

// parts makes the target have the source's parts, those of one listing.
func (s *stream) parts(ctx context.Context) error {
	for range maxListings {
		names, err := s.names(ctx)
		if err != nil {
			return err
		}
		all, err := s.writeParts(ctx, names)
		if err != nil {
			return err
		}
		if all {
			return s.deleteParts(ctx, names)
		}
	}
	return errors.New("the source replaces its snapshots faster than they can be copied; copy again at a quieter time")
}

// names lists the source's parts, but for a note that an earlier copy has left.
func (s *stream) names(ctx context.Context) ([]string, error) {
	names, err := s.r.Parts(ctx, "")
	return slices.DeleteFunc(names, func(name string) bool { return name == noteName }), err
}

// rank orders parts: whatever a manifest names comes before it, and the mark of discarded metas before everything, so that a
// target that is opened too early is not taken for an empty one. See journal.SaveSnapshot.
func rank(name string) int {
	switch {
	case name == "m/discard":
		return 0
	case strings.HasPrefix(name, "m/"):
		return 2
	}
	return 1
}

// fixed tells parts that never change under their name.
func fixed(name string) bool {
	return name != "m/discard" && (strings.HasPrefix(name, "m/") || strings.HasPrefix(name, "c/"))
}

// writeParts writes what the target does not have. all is false if a part was gone by the time that it was read.
func (s *stream) writeParts(ctx context.Context, names []string) (all bool, err error) {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	for _, name := range names {
		if s.same[name] {
			continue
		}
		data, err := s.r.ReadPart(ctx, name)
		if errors.Is(err, journal.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		there, err := s.h.ReadPart(ctx, name)
		switch {
		case err == nil && bytes.Equal(there, data):
			s.same[name] = fixed(name)
			continue
		case err != nil && !errors.Is(err, journal.ErrNotFound) && !errors.Is(err, journal.ErrCorrupt):
			return false, err
		}
		if len(data) > s.lim.MaxPartBytes {
			return false, &LimitError{Stream: s.name, Part: name, Size: len(data), Limit: s.lim.MaxPartBytes, Count: 1}
		}
		if err := s.settle(ctx, func(ctx context.Context) error { return s.h.WritePart(ctx, name, data) }); err != nil {
			return false, err
		}
		s.same[name] = fixed(name)
		s.res.Parts++
		s.res.Bytes += int64(len(data))
	}
	return true, nil
}

// deleteParts deletes what the source does not have.
func (s *stream) deleteParts(ctx context.Context, names []string) error {
	there, err := s.h.Parts(ctx, "")
	if err != nil {
		return err
	}
	there = slices.DeleteFunc(there, func(name string) bool {
		_, ok := slices.BinarySearch(names, name)
		return ok || name == noteName
	})
	if len(there) == 0 {
		return nil
	}
	return s.settle(ctx, func(ctx context.Context) error { return s.h.DeleteParts(ctx, there) })
}

// verifyParts compares the target's parts with those of the source that are still there.
func (s *stream) verifyParts(ctx context.Context) error {
	names, err := s.h.Parts(ctx, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == noteName {
			continue
		}
		got, err := s.h.ReadPart(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: part %q: %w", ErrVerify, name, err)
		}
		want, err := s.r.ReadPart(ctx, name)
		switch {
		case errors.Is(err, journal.ErrNotFound):
			continue // it has been replaced since
		case err != nil:
			return err
		case !bytes.Equal(got, want) && fixed(name):
			return fmt.Errorf("%w: part %q has other data", ErrVerify, name)
		}
	}
	return nil
}
