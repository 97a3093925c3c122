package cassandra

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// directory tells where the parts of a stream are. It is one value in the stream's head: deleting parts leaves no
// tombstone that a later listing has to read over. Each version of a part is a partition of its own, written before the directory names it.
type directory struct {
	parts map[string]partRef
	trash []int64 // slots of parts that nobody needs, not deleted yet
}

// partRef is a version of a part.
type partRef struct {
	slot int64
	id   [8]byte // tells it from what a late owner wrote into the same slot
	crc  uint32
}

const directoryVersion = 1

// encode returns the directory as it is stored. writing are further slots, that are trash if their writer does not come to an end.
func (d *directory) encode(writing map[int64]bool) []byte {
	b := []byte{directoryVersion}
	b = binary.AppendUvarint(b, uint64(len(d.parts)))
	for _, name := range slices.Sorted(maps.Keys(d.parts)) {
		p := d.parts[name]
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.AppendUvarint(b, uint64(p.slot))
		b = append(b, p.id[:]...)
		b = binary.BigEndian.AppendUint32(b, p.crc)
	}
	for _, slot := range d.trash {
		b = binary.AppendUvarint(b, uint64(slot))
	}
	for slot := range writing {
		b = binary.AppendUvarint(b, uint64(slot))
	}
	return b
}

func decodeDirectory(b []byte) (directory, error) {
	d := directory{parts: map[string]partRef{}}
	if len(b) == 0 {
		return d, nil
	}
	if b[0] > directoryVersion {
		return d, fmt.Errorf("directory of parts: version %d: %w", b[0], journal.ErrNewerFormat)
	}
	damaged := &journal.CorruptError{What: "directory of parts"}
	b = b[1:]
	number := func() (uint64, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return 0, false
		}
		b = b[size:]
		return n, true
	}
	count, ok := number()
	for ; ok && count > 0; count-- {
		var n, slot uint64
		if n, ok = number(); !ok || n > uint64(len(b)) {
			return d, damaged
		}
		name := string(b[:n])
		b = b[n:]
		if slot, ok = number(); !ok || len(b) < 12 {
			return d, damaged
		}
		d.parts[name] = partRef{int64(slot), [8]byte(b[:8]), binary.BigEndian.Uint32(b[8:12])}
		b = b[12:]
	}
	for ok && len(b) > 0 {
		var slot uint64
		slot, ok = number()
		d.trash = append(d.trash, int64(slot))
	}
	if !ok {
		return d, damaged
	}
	return d, nil
}

// dropped returns the directory of a stream without parts.
func (d *directory) dropped() directory {
	out := directory{parts: map[string]partRef{}, trash: slices.Clone(d.trash)}
	for _, p := range d.parts {
		out.trash = append(out.trash, p.slot)
	}
	return out
}

// without returns a copy of the directory in which names are gone.
func (d *directory) without(names ...string) directory {
	out := directory{parts: maps.Clone(d.parts), trash: slices.Clone(d.trash)}
	for _, name := range names {
		if p, ok := out.parts[name]; ok {
			out.trash = append(out.trash, p.slot)
			delete(out.parts, name)
		}
	}
	return out
}

// WritePart stores a part: its data at first, and then its place in the directory.
func (h *hold) WritePart(ctx context.Context, name string, data []byte) error {
	err := journal.CheckPart(h.j.lim, name, data)
	if err == nil {
		err = h.usable(ctx)
	}
	if err == nil {
		err = h.writePart(ctx, name, data)
	}
	if err != nil {
		return h.failed(fmt.Sprintf("write part %q of", name), h.j.ended(ctx, err))
	}
	h.emptyTrash(ctx)
	return nil
}

func (h *hold) writePart(ctx context.Context, name string, data []byte) error {
	ref := partRef{crc: journal.Checksum(data)}
	rand.Read(ref.id[:]) // never fails
	if data == nil {
		data = []byte{}
	}
	if err := h.turn.take(ctx); err != nil {
		return err
	}
	if err := h.refresh(ctx, &h.ledger); err != nil {
		h.turn.give()
		return err
	}
	ref.slot = h.ledger.slot
	h.ledger.slot++
	h.ledger.writing[ref.slot] = true
	h.turn.give()
	err := h.j.write(ctx, "part", h.name, func() error { return h.j.exec(ctx, cqlPutPart, h.key, ref.slot, ref.id[:], data) })
	if err == nil {
		err = h.change(ctx, "name part", func(l *ledger, rev int64) ([]statement, func(), error) {
			next := l.dir.without(name)
			next.parts[name] = ref
			others := maps.Clone(l.writing)
			delete(others, ref.slot)
			return []statement{{cqlSetParts, []any{next.encode(others), l.slot, rev, h.key, h.fence, l.rev}}}, func() {
				l.dir = next
				delete(l.writing, ref.slot)
			}, nil
		})
	}
	if err != nil {
		h.mu.Lock()
		h.doubt = append(h.doubt, ref.slot)
		h.mu.Unlock()
	}
	return err
}

// settle decides about slots of parts whose writing has failed: what the directory does not name is trash.
func (l *ledger) settle(doubt []int64) {
	for _, slot := range doubt {
		delete(l.writing, slot)
		named := false
		for _, p := range l.dir.parts {
			named = named || p.slot == slot
		}
		if !named && !slices.Contains(l.dir.trash, slot) {
			l.dir.trash = append(slices.Clone(l.dir.trash), slot)
		}
	}
}

// DeleteParts deletes parts.
func (h *hold) DeleteParts(ctx context.Context, names []string) error {
	err := h.change(ctx, "delete parts", func(l *ledger, rev int64) ([]statement, func(), error) {
		next := l.dir.without(names...)
		if len(next.parts) == len(l.dir.parts) {
			return nil, nil, nil
		}
		return []statement{{cqlSetParts, []any{next.encode(l.writing), l.slot, rev, h.key, h.fence, l.rev}}}, func() { l.dir = next }, nil
	})
	if err != nil {
		return h.failed("delete parts of", h.j.ended(ctx, err))
	}
	h.emptyTrash(ctx)
	return nil
}

// emptyTrash deletes the data of parts that nobody needs. The directory learns of it when it is written next.
func (h *hold) emptyTrash(ctx context.Context) {
	if h.turn.take(ctx) != nil {
		return
	}
	var trash []int64
	if !h.ledger.stale {
		trash = slices.Clone(h.ledger.dir.trash)
	}
	h.turn.give()
	for _, slot := range trash {
		if h.dropPart(ctx, slot) != nil || h.turn.take(ctx) != nil {
			return
		}
		h.ledger.dir.trash = slices.DeleteFunc(slices.Clone(h.ledger.dir.trash), func(s int64) bool { return s == slot })
		h.turn.give()
	}
}

func (h *hold) dropPart(ctx context.Context, slot int64) error {
	return h.j.write(ctx, "delete part", h.name, func() error { return h.j.exec(ctx, cqlDropPart, h.key, slot) })
}

// ReadPart returns a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, failed(fmt.Sprintf("read part %q of", name), r.name, r.j.ended(ctx, err))
	}
	if err := journal.CheckName("part", name); err != nil {
		return fail(err)
	}
	if err := r.usable(ctx); err != nil {
		return fail(err)
	}
	var was partRef
	for {
		h, err := r.j.readHead(ctx, r.key, false)
		if err != nil {
			return fail(err)
		}
		ref, ok := h.parts.parts[name]
		if !ok || h.dropped {
			return fail(journal.ErrNotFound)
		}
		at, found, err := r.j.read(ctx, cqlPart, r.key, ref.slot, ref.id[:])
		if err != nil {
			return fail(err)
		}
		data := at.bytes("data")
		if found && journal.Checksum(data) == ref.crc {
			return bytes.Clone(data), nil
		}
		if ref == was {
			return fail(&journal.CorruptError{Stream: r.name, What: fmt.Sprintf("part %q is damaged or missing", name)})
		}
		was = ref // replaced between the two reads, perhaps
	}
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.usable(ctx); err != nil {
		return nil, failed("list parts of", r.name, err)
	}
	h, err := r.j.readHead(ctx, r.key, false)
	if err != nil {
		return nil, failed("list parts of", r.name, r.j.ended(ctx, err))
	}
	var names []string
	for name := range h.parts.parts {
		if !h.dropped && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
