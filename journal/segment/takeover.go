package segment

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// takeOver applies batches of which nobody knows whether they are on stable storage: they can be read, but may be in the page cache
// only. They are written anew, to another segment, so that a disk that could not store them where they are is not asked again.
func (r *recovery) takeOver(unproved []found) error {
	if len(unproved) == 0 {
		return nil
	}
	if !r.j.opts.ReadOnly {
		moved, err := r.copyBatches(unproved)
		if isNoSpace(err) {
			moved, err = unproved, r.rewrite(unproved)
		} else {
			r.clean = true
		}
		if err != nil {
			return err
		}
		unproved = moved
	}
	for i := range unproved {
		f := &unproved[i]
		if err := r.batch(f); err != nil {
			return err
		}
		r.last = f.position()
	}
	return nil
}

// copyBatches writes batches to a new segment, durably.
func (r *recovery) copyBatches(batches []found) ([]found, error) {
	s, err := r.fl.take()
	if err != nil {
		return nil, err
	}
	at, prev := int64(headerBlock), r.last.crc
	var out []found
	for i := range batches {
		f := batches[i]
		b := make([]byte, alignUp(int64(f.size), pageSize))
		if err := r.fl.readAt(f.seg, b[:f.size], f.off); err != nil {
			return nil, err
		}
		f.salt, f.first, f.prev = s.salt, batches[0].n, prev
		f.put(b)
		if err := s.writeAt(r.fl, [][]byte{b}, at, at+int64(len(b))); err != nil {
			return nil, err
		}
		f.seg, f.off = s, at
		at, prev = f.end(), f.crc
		out = append(out, f)
	}
	return out, r.syncSegment(s)
}

// rewrite writes batches again where they are.
func (r *recovery) rewrite(batches []found) error {
	for i := range batches {
		f := &batches[i]
		b := make([]byte, f.size)
		if err := r.fl.readAt(f.seg, b, f.off); err != nil {
			return err
		}
		h, err := r.fl.fs.Open(filepath.Join(r.fl.dir, f.seg.name), vfs.Write)
		if err == nil {
			if err = h.WriteAt([][]byte{b}, f.off); err == nil {
				err = h.Sync()
			}
			err = errors.Join(err, h.Close())
		}
		if err != nil {
			return fmt.Errorf("segment %s: %w", f.seg.name, err)
		}
	}
	return nil
}

func (r *recovery) syncSegment(s *segment) error {
	f, err := r.fl.handle(s)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("sync segment %s: %w", s.name, err)
	}
	return nil
}
