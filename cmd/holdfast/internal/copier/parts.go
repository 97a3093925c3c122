package copier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// maxListings bounds how often the parts are listed, of a source that changes them at the same time.
const maxListings = 50

// parts reads the source's parts that the target does not have, those of one listing. They are written by write, or before that if they are too
// much to be kept.
func (s *stream) parts(ctx context.Context) error {
	for range maxListings {
		names, err := s.names(ctx)
		if err != nil {
			return err
		}
		all, err := s.readParts(ctx, names)
		if err != nil {
			return err
		}
		if all {
			s.listed = names
			return nil
		}
	}
	return s.tooFast("replaces its snapshots faster than they are read")
}

// names lists the source's parts, but for a note that an earlier copy has left.
func (s *stream) names(ctx context.Context) ([]string, error) {
	names, err := s.r.Parts(ctx, "")
	return slices.DeleteFunc(names, func(name string) bool { return name == noteName }), err
}

// byRank orders names of parts for writing.
func byRank(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) }

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

// readParts reads parts. all is false if one was gone by the time that it was read.
func (s *stream) readParts(ctx context.Context, names []string) (all bool, err error) {
	for name, data := range s.blobs {
		if _, ok := slices.BinarySearch(names, name); !ok || !fixed(name) {
			s.drop(name, data)
		}
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, byRank)
	for _, name := range names {
		if _, ok := s.blobs[name]; ok || s.same[name] {
			continue
		}
		data, err := s.r.ReadPart(ctx, name)
		if errors.Is(err, journal.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		s.blobs[name] = data
		if s.held += len(data); s.held >= s.o.Ahead {
			if err := s.write(ctx); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// drop forgets a part that was read.
func (s *stream) drop(name string, data []byte) {
	delete(s.blobs, name)
	s.held -= len(data)
}

// writeParts writes the parts that were read ahead.
func (s *stream) writeParts(ctx context.Context) error {
	for _, name := range slices.SortedFunc(maps.Keys(s.blobs), byRank) {
		data := s.blobs[name]
		if err := s.writePart(ctx, name, data); err != nil {
			return err
		}
		s.same[name] = fixed(name)
		s.drop(name, data)
	}
	return nil
}

// writePart writes a part that the target does not have.
func (s *stream) writePart(ctx context.Context, name string, data []byte) error {
	there, err := s.h.ReadPart(ctx, name)
	switch {
	case err == nil && bytes.Equal(there, data):
		return nil
	case err != nil && !errors.Is(err, journal.ErrNotFound) && !errors.Is(err, journal.ErrCorrupt):
		return err
	}
	if len(data) > s.lim.MaxPartBytes {
		return &LimitError{Stream: s.name, Part: name, Size: len(data), Limit: s.lim.MaxPartBytes, Count: 1}
	}
	if err := s.settle(ctx, func(ctx context.Context) error { return s.h.WritePart(ctx, name, data) }); err != nil {
		return err
	}
	s.res.Parts++
	s.res.Bytes += int64(len(data))
	return nil
}

// deleteParts deletes what the source did not have when its parts were read.
func (s *stream) deleteParts(ctx context.Context) error {
	there, err := s.h.Parts(ctx, "")
	if err != nil {
		return err
	}
	there = slices.DeleteFunc(there, func(name string) bool {
		_, ok := slices.BinarySearch(s.listed, name)
		return ok || name == noteName
	})
	if len(there) == 0 {
		return nil
	}
	for _, name := range there {
		delete(s.same, name)
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
