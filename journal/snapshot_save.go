package journal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// SavedSnapshot tells what SaveSnapshot did.
type SavedSnapshot struct {
	// DiscardLow is what Stream.DiscardMeta may now be called with: the seq behind the older
	// of the two snapshots that are kept. 0 means that there is only one yet, and no meta may be
	// discarded.
	DiscardLow uint64
	// Chunks and Bytes are the snapshot's size; Written is how many bytes of it were not
	// yet in the store.
	Chunks         int
	Bytes, Written uint64
}

// Small chunks are kept in the manifest: a part of their own would cost a sync each.
const (
	maxInline      = 512     // bytes of a chunk
	maxInlineTotal = 8 << 10 // bytes of all of them
)

// SaveSnapshot stores the state after id.Seq, given in chunks, whose boundaries LoadSnapshot
// keeps. Chunks that did not change since the snapshot before are not written again, so it pays to cut the
// state where it changes little: at fixed places, into chunks of 16 KiB to 1 MiB. Larger ones than
// lim.MaxPartBytes are split inside. A chunk needs to be valid only until the iterator's next step.
//
// id must name the end of a stored record of the stream (ErrInvalid if not) and the owner's epoch. Where
// records are appended with Buffered, it must be one with an unbuffered record at or behind it.
//
// What was stored is read back and compared. Then all but this snapshot and the newest
// intact one before it are deleted, with the chunks that no other one uses. Nothing else
// is discarded: that is the caller's to do, as far as DiscardLow allows.
//
// Part names that begin with c/ or m/ belong to snapshots; all others are free.
//
// After an error there may be a new snapshot or not, and the old ones are as good as they were:
// call it again with the same or, better, a later state. It is called by one goroutine at a time per
// stream. Cost: the changed chunks are written, one part each, and all are read.
func SaveSnapshot(ctx context.Context, s Stream, lim Limits, id SnapshotID, chunks iter.Seq[[]byte]) (SavedSnapshot, error) {
	v := &saver{s: s, lim: lim, m: manifest{uid: s.Acquired().UID, id: id}}
	rand.Read(v.m.nonce[:]) // never fails
	if err := v.save(ctx, chunks); err != nil {
		return SavedSnapshot{}, fmt.Errorf("stream %q: save %v: %w", s.Acquired().Name, id, err)
	}
	return v.result, nil
}

// saver is one SaveSnapshot call.
type saver struct {
	s      Stream
	lim    Limits
	m      manifest // the one to be written
	result SavedSnapshot

	info      Info
	manifests []string            // names found in the store
	marked    bool                // discardMark is there
	pieces    map[string]struct{} // names found in the store
	older     *manifest           // the newest intact one before id, or nil
	reuse     map[[16]byte]piece  // the pieces of older, and those written by this call
	inline    int
}

func (v *saver) save(ctx context.Context, chunks iter.Seq[[]byte]) error {
	if err := v.check(ctx); err != nil {
		return err
	}
	if err := v.survey(ctx); err != nil {
		return err
	}
	for data := range chunks {
		if err := v.writeChunk(ctx, data); err != nil {
			return err
		}
	}
	if err := v.writeManifest(ctx); err != nil {
		return err
	}
	if err := v.deleteOld(ctx); err != nil {
		return fmt.Errorf("delete older snapshots: %w", err)
	}
	if v.older == nil {
		return nil
	}
	if !v.marked {
		if err := v.s.WritePart(ctx, discardMark, nil); err != nil {
			return err
		}
	}
	v.result.DiscardLow = v.older.id.Seq + 1
	return nil
}

// check refuses an id that is not the end of a stored record.
func (v *saver) check(ctx context.Context) error {
	id := v.m.id
	switch {
	case id.Seq == 0:
		return fmt.Errorf("seq 0: %w", ErrInvalid)
	case id.Epoch != v.s.Acquired().Epoch:
		return fmt.Errorf("the owner's epoch is %d: %w", v.s.Acquired().Epoch, ErrInvalid)
	case v.lim.MaxPartBytes <= 0:
		return fmt.Errorf("parts of at most %d bytes: %w", v.lim.MaxPartBytes, ErrInvalid)
	}
	var err error
	if v.info, err = v.s.Info(ctx); err != nil {
		return err
	}
	err = continues(ctx, v.s, v.info, id)
	if bad := (*mismatch)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", bad.what, ErrInvalid)
	}
	return err
}

// survey finds the snapshot before, and deletes pieces that failed calls have left behind.
func (v *saver) survey(ctx context.Context) error {
	found, marked, err := listManifests(ctx, v.s)
	if err != nil {
		return err
	}
	v.marked = marked
	names, err := v.s.Parts(ctx, piecePrefix)
	if err != nil {
		return err
	}
	v.pieces = make(map[string]struct{}, len(names))
	for _, name := range names {
		v.pieces[name] = struct{}{}
	}
	used := map[string]struct{}{}
	damaged := false
	for _, f := range found {
		v.manifests = append(v.manifests, f.name())
		m, err := readManifest(ctx, v.s, f.name())
		if isDamage(err) {
			damaged = true
			continue
		}
		if err != nil {
			return err
		}
		m.addNames(used)
		if v.older == nil {
			ok, err := v.keepable(ctx, m)
			if err != nil {
				return err
			}
			if ok {
				v.older = m
			}
		}
	}
	v.reuse = map[[16]byte]piece{}
	if v.older != nil {
		for _, c := range v.older.chunks {
			for _, p := range c.pieces {
				v.reuse[p.hash] = p
			}
		}
	}
	if damaged {
		return nil // its pieces are not known: leave all until a good snapshot stands
	}
	return v.deletePieces(ctx, used)
}

// keepable tells whether m can serve as the older of the two snapshots: it is of this life of the stream,
// before the new one, complete, and continued by the stream.
func (v *saver) keepable(ctx context.Context, m *manifest) (bool, error) {
	if m.uid != v.m.uid || m.id.Seq >= v.m.id.Seq {
		return false, nil
	}
	for _, c := range m.chunks {
		for _, p := range c.pieces {
			if _, ok := v.pieces[p.name()]; !ok {
				return false, nil
			}
		}
	}
	err := continues(ctx, v.s, v.info, m.id)
	if bad := (*mismatch)(nil); errors.As(err, &bad) {
		return false, nil
	}
	return err == nil, err
}

func (v *saver) writeChunk(ctx context.Context, data []byte) error {
	v.result.Chunks++
	v.result.Bytes += uint64(len(data))
	if len(data) == 0 || len(data) <= maxInline && v.inline+len(data) <= min(maxInlineTotal, v.lim.MaxPartBytes/4) {
		v.inline += len(data)
		v.m.chunks = append(v.m.chunks, chunk{inline: bytes.Clone(data)})
		return nil
	}
	var c chunk
	for section := range slices.Chunk(data, v.lim.MaxPartBytes) {
		p, err := v.writePiece(ctx, section)
		if err != nil {
			return err
		}
		c.pieces = append(c.pieces, p)
	}
	v.m.chunks = append(v.m.chunks, c)
	return nil
}

// writePiece stores a piece unless it is there. Only pieces of a snapshot that is kept
// are used again: any other may be the target of a delete that is still on its way.
func (v *saver) writePiece(ctx context.Context, data []byte) (piece, error) {
	hash := hashOf(data)
	if p, ok := v.reuse[hash]; ok {
		stored, err := v.s.ReadPart(ctx, p.name())
		switch {
		case err == nil && bytes.Equal(stored, data):
			return p, nil
		case err != nil && !isDamage(err):
			return piece{}, err
		}
		// Damaged since: written anew, under another name.
	}
	p := piece{hash: hash, nonce: v.m.nonce, size: uint64(len(data))}
	if err := v.s.WritePart(ctx, p.name(), data); err != nil {
		return piece{}, err
	}
	if err := v.readBack(ctx, p.name(), data); err != nil {
		return piece{}, err
	}
	v.result.Written += p.size
	v.reuse[hash] = p
	return p, nil
}

func (v *saver) writeManifest(ctx context.Context) error {
	data := v.m.encode()
	if len(data) > v.lim.MaxPartBytes {
		return fmt.Errorf("%d chunks need a manifest of %d bytes, a part has at most %d: make the chunks larger: %w",
			len(v.m.chunks), len(data), v.lim.MaxPartBytes, ErrTooLarge)
	}
	if err := v.s.WritePart(ctx, v.m.name(), data); err != nil {
		return err
	}
	return v.readBack(ctx, v.m.name(), data)
}

func (v *saver) readBack(ctx context.Context, name string, want []byte) error {
	got, err := v.s.ReadPart(ctx, name)
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	if !bytes.Equal(got, want) {
		return &CorruptError{What: fmt.Sprintf("part %q reads back other than it was written", name)}
	}
	return nil
}

// deleteOld deletes all snapshots but the new one and the older one: the manifests first, so
// that none refers to a piece that is gone.
func (v *saver) deleteOld(ctx context.Context) error {
	used := map[string]struct{}{}
	v.m.addNames(used)
	if v.older != nil {
		v.older.addNames(used)
	}
	old := slices.DeleteFunc(v.manifests, func(name string) bool { return v.older != nil && name == v.older.name() })
	if len(old) > 0 {
		if err := v.s.DeleteParts(ctx, old); err != nil {
			return err
		}
	}
	return v.deletePieces(ctx, used)
}

// deletePieces deletes the surveyed pieces that are not used.
func (v *saver) deletePieces(ctx context.Context, used map[string]struct{}) error {
	var unused []string
	for name := range v.pieces {
		if _, ok := used[name]; !ok {
			unused = append(unused, name)
		}
	}
	if len(unused) == 0 {
		return nil
	}
	slices.Sort(unused)
	if err := v.s.DeleteParts(ctx, unused); err != nil {
		return err
	}
	for _, name := range unused {
		delete(v.pieces, name)
	}
	return nil
}

// addNames adds the names of the manifest's pieces to set.
func (m *manifest) addNames(set map[string]struct{}) {
	for _, c := range m.chunks {
		for _, p := range c.pieces {
			set[p.name()] = struct{}{}
		}
	}
}

// listManifests returns what the names of the stored manifests tell, the newest first, and
// whether discardMark is there.
func listManifests(ctx context.Context, r Reader) (found []manifest, marked bool, err error) {
	names, err := r.Parts(ctx, manifestPrefix)
	if err != nil {
		return nil, false, err
	}
	for _, name := range names {
		if m, ok := parseManifestName(name); ok {
			found = append(found, m)
		}
		marked = marked || name == discardMark
	}
	slices.SortFunc(found, func(a, b manifest) int {
		return cmp.Or(cmp.Compare(b.id.Seq, a.id.Seq), cmp.Compare(b.id.Epoch, a.id.Epoch), bytes.Compare(b.nonce[:], a.nonce[:]))
	})
	return found, marked, nil
}

func readManifest(ctx context.Context, r Reader, name string) (*manifest, error) {
	data, err := r.ReadPart(ctx, name)
	if err != nil {
		return nil, err
	}
	return decodeManifest(name, data)
}

// isDamage tells errors that say that data is damaged or gone from those that may pass.
func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound)
}
