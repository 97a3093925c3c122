package copier

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// stream is the copying of one stream.
type stream struct {
	*job
	name string
	r    journal.Reader // of the source
	h    journal.Stream // of the target
	uid  journal.UID
	at   position // where the target ends
	// began is the first seq that this run copies.
	began uint64

	// lacking counts bodies that were not copied because the source had discarded them. The deletes of their messages are at or before where the
	// source ends by then, and have to be copied too.
	lacking int
	// bridged tells that metas were lacking, which a later look at the snapshots has to stand for.
	bridged bool
	// looks counts how often it was read up to where the source ended.
	looks int
	// ahead and blobs are records and parts that were read and are not yet in the target, and held is what they hold, in bytes. The source discards and
	// replaces at its own speed, and the target takes them at its own: so what is to be of one moment is read first and written then.
	ahead   []*journal.Record
	blobs   map[string][]byte // by name
	held    int
	listed  []string        // the parts that the source had when they were read last
	dead    []journal.Range // bodies that the source no longer has
	absent  []uint64        // records whose bodies the source has, and the target does not
	damaged map[uint64]bool // records of the source whose bodies cannot be read
	same    map[string]bool // parts that never change, and are known to be in the target
	res     Result
}

// position is where a stream ends.
type position struct {
	end   uint64
	crc   uint32
	time  int64
	epoch uint64
}

const (
	// maxLooks bounds how often the source is followed. Each time is shorter than the one before it, unless it discards faster than it can be read.
	maxLooks = 200
	// maxExtensions is how often in a row, before snapshots are looked at again.
	maxExtensions = 10
)

// run copies what the target does not have yet, and then compares.
func (s *stream) run(ctx context.Context) error {
	info, err := s.r.Info(ctx)
	if err != nil {
		return err
	}
	s.begin(info)
	if info.Dropped {
		return s.dropped(ctx, info)
	}
	if err := s.attach(ctx, info); err != nil {
		return err
	}
	s.began = s.at.end + 1
	low, err := s.copy(ctx)
	if err != nil {
		return err
	}
	s.res.End = s.at.end
	if err := s.sign(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx, func(ctx context.Context) error { return s.h.DiscardMeta(ctx, low) }); err != nil {
		return err
	}
	if !s.o.NoVerify {
		if err := s.verify(ctx); err != nil {
			return err
		}
	}
	info, err = s.info(ctx)
	if errors.Is(err, errNewLife) {
		return nil // dropped after it had been copied: another run finds that
	}
	s.res.SourceEnd = info.End
	return err
}

// begin forgets what was known of an earlier life of the stream.
func (s *stream) begin(info journal.Info) {
	s.uid, s.res.Dropped, s.res.SourceEnd = info.UID, info.Dropped, info.End
	s.ahead, s.blobs, s.listed, s.held = nil, map[string][]byte{}, nil, 0
	s.looks, s.lacking, s.bridged = 0, 0, false
	s.dead, s.absent, s.damaged, s.same = nil, nil, map[uint64]bool{}, map[string]bool{}
	s.res.Damaged, s.res.Damage = 0, nil
}

// copy makes the target have what the source had at one moment, and returns the lowest seq whose meta it needs then.
func (s *stream) copy(ctx context.Context) (low uint64, err error) {
	// Snapshots come first: a target that somebody opens before it is complete then has snapshots beyond its end, and is
	// refused instead of taken for an empty queue.
	if err := s.parts(ctx); err != nil {
		return 0, err
	}
	if err := s.write(ctx); err != nil {
		return 0, err
	}
	for {
		if _, err = s.follow(ctx); err != nil {
			return 0, err
		}
		if err = s.write(ctx); err != nil {
			return 0, err
		}
		// As it is before the last look at the snapshots: so they stand for everything below.
		info, err := s.info(ctx)
		if err != nil {
			return 0, err
		}
		if err = s.parts(ctx); err != nil {
			return 0, err
		}
		// Once more behind the snapshots: they may be of later than where the target ends.
		done, err := s.follow(ctx)
		if err != nil {
			return 0, err
		}
		if err := s.write(ctx); err != nil {
			return 0, err
		}
		if err := s.deleteParts(ctx); done || err != nil {
			return info.Low, err
		}
		if s.looks >= maxLooks {
			return 0, s.tooFast("discards faster than it is followed")
		}
	}
}

// tooFast says that the source cannot be followed, and what to do about that.
func (s *stream) tooFast(what string) error {
	return fmt.Errorf("copied up to seq %d, but the source %s; copy again at a quieter time, or read more than %d MiB ahead (--ahead)", s.at.end, what, s.o.Ahead>>20)
}

// follow reads records up to where the source ends now, or has ended by the time that none of them lacked its body any more. done tells that what
// the target has, once they are written, is of one moment: no body is lacking, and no record was discarded before it could be copied, which only later snapshots stand for.
func (s *stream) follow(ctx context.Context) (done bool, err error) {
	s.bridged = false
	for range maxExtensions {
		info, err := s.info(ctx)
		if err != nil {
			return false, err
		}
		s.looks++
		s.lacking = 0
		if err := s.records(ctx, info.End); err != nil {
			return false, err
		}
		if s.lacking == 0 {
			break
		}
	}
	return s.lacking == 0 && !s.bridged, nil
}

// info reads the source's state, of the life that is being copied.
func (s *stream) info(ctx context.Context) (journal.Info, error) {
	info, err := s.r.Info(ctx)
	if err == nil && (info.UID != s.uid || info.Dropped) {
		err = errNewLife
	}
	return info, err
}

// attach takes hold of the target's stream.
func (s *stream) attach(ctx context.Context, info journal.Info) error {
	from := journal.Info{UID: info.UID, Epoch: info.Epoch}
	there, err := s.target(ctx)
	if err != nil {
		return err
	}
	if there.Epoch == 0 {
		if from, err = s.beginning(ctx, info); err != nil {
			return err
		}
	} else if err := s.continues(ctx, there, info); err != nil {
		return err
	}
	if err := s.importAs(ctx, from); err != nil {
		return err
	}
	if there.Epoch > 0 && (s.at.end != there.End || s.at.crc != there.EndCRC) {
		return fmt.Errorf("%w: somebody else has just written to it", ErrTarget)
	}
	return nil
}

// continues verifies, before anything is changed, that the target's stream is a copy of this one that nobody else has written to.
func (s *stream) continues(ctx context.Context, there, info journal.Info) error {
	written := fmt.Errorf("%w: its stream ends at seq %d with a record that is not the source's: it has been written to since it was copied", ErrTarget, there.End)
	switch {
	case there.UID != info.UID:
		return fmt.Errorf("%w: it has another stream of that name, of uid %s, or an earlier life of this one, which was deleted and made anew since; copy into an empty store", ErrTarget, there.UID)
	case there.Dropped:
		return fmt.Errorf("%w: the stream was dropped in it; copy into an empty store", ErrTarget)
	case there.End > info.End:
		return fmt.Errorf("%w: its stream goes on to seq %d, the source's to %d: it has been written to since it was copied", ErrTarget, there.End, info.End)
	case there.End == info.End && there.EndCRC != info.EndCRC:
		return written
	case there.End == info.End:
		return nil
	}
	for rec, err := range s.r.ReadMeta(ctx, there.End+1, there.End+1) {
		switch {
		case err != nil:
			return err
		case rec.First == there.End+1 && (rec.PrevCRC == there.EndCRC || there.End == 0):
			return nil
		case rec.First <= there.End+1:
			return written
		}
	}
	// The source has discarded what it had there, so the records say nothing. But every owner has an epoch of its own.
	r, err := s.dst.Open(ctx, s.name)
	if err != nil {
		return err
	}
	switch ours, err := onlyCopied(ctx, r, there); {
	case err != nil:
		return err
	case !ours:
		return fmt.Errorf("%w: the source has discarded what follows seq %d, where the copy ends, and another than a copy may have had the target open since: copy into an empty store",
			ErrTarget, there.End)
	}
	return nil
}

// onlyCopied tells whether nobody but copies has written to the target's stream. A copy notes its epoch before it writes, and what it writes is of no later
// one, since Import is given the source's; who acquires the stream has a later one, and so have the records that he writes. A copy that was
// ended before it could note its epoch has written nothing.
func onlyCopied(ctx context.Context, r journal.Reader, there journal.Info) (bool, error) {
	text, err := r.ReadPart(ctx, noteName)
	if errors.Is(err, journal.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var epoch, end uint64
	if n, _ := fmt.Sscanf(string(text), noteFormat, &epoch, &end); n == 0 {
		return false, nil // not a copy's
	}
	if epoch == there.Epoch || end == there.End && end > 0 {
		return true, nil
	}
	for rec, err := range r.ReadMeta(ctx, there.End, there.End) {
		if err != nil {
			return false, err
		}
		return rec.Last() == there.End && rec.Epoch <= epoch, nil
	}
	return false, nil // discarded, and not by a copy, which notes the end before
}

// noteName is the part of the target in which a copy notes its epoch, and where it ended when it was noted: see onlyCopied. It has nothing to do with the
// source's parts.
const noteName, noteFormat = "holdfast-copy", "epoch %d end %d"

// sign notes the copy's epoch and end.
func (s *stream) sign(ctx context.Context) error {
	text := fmt.Sprintf(noteFormat, s.h.Acquired().Epoch, s.at.end)
	return s.settle(ctx, func(ctx context.Context) error { return s.h.WritePart(ctx, noteName, []byte(text)) })
}

// target reads the state of the target's stream.
func (s *stream) target(ctx context.Context) (journal.Info, error) {
	r, err := s.dst.Open(ctx, s.name)
	if err != nil {
		return journal.Info{}, err
	}
	return r.Info(ctx)
}

// importAs imports, and takes over where the target ends.
func (s *stream) importAs(ctx context.Context, from journal.Info) error {
	var h journal.Stream
	err := s.settle(ctx, func(ctx context.Context) (err error) {
		h, err = s.imp.Import(ctx, s.name, from)
		return err
	})
	if errors.Is(err, journal.ErrConflict) {
		return fmt.Errorf("%w: %w; copy into an empty store, or into one that only copies of this source were made to", ErrTarget, err)
	}
	if err != nil {
		return err
	}
	s.h = h
	at := h.Acquired()
	s.at = position{at.End, at.EndCRC, at.EndTime, s.at.epoch}
	return s.sign(ctx)
}

// beginning returns where a new copy begins: before the first record whose body is needed, or whose meta is kept.
func (s *stream) beginning(ctx context.Context, info journal.Info) (journal.Info, error) {
	from := journal.Info{UID: info.UID, Epoch: info.Epoch}
	if info.Low == 1 {
		return from, nil
	}
	live, err := s.live(ctx, 0, info.Low)
	if err != nil {
		return from, err
	}
	for rec, err := range s.bodies(ctx, live) {
		if err != nil {
			return from, err
		}
		from.End, from.EndCRC, from.EndTime = rec.First-1, rec.PrevCRC, rec.Time
		if from.End == 0 {
			from.EndCRC, from.EndTime = 0, 0
		}
		return from, nil
	}
	end, err := s.before(ctx, info)
	from.End, from.EndCRC, from.EndTime = end.end, end.crc, end.time
	return from, err
}

// before returns the end of what the source has discarded: seq Low-1. The epoch and time are of what comes next, which
// are no lower.
func (s *stream) before(ctx context.Context, info journal.Info) (position, error) {
	if info.Low > info.End {
		return position{info.End, info.EndCRC, info.EndTime, info.Epoch}, nil
	}
	for rec, err := range s.r.ReadMeta(ctx, info.Low, info.Low) {
		if err != nil {
			return position{}, err
		}
		if rec.First == info.Low {
			return position{rec.First - 1, rec.PrevCRC, rec.Time, rec.Epoch}, nil
		}
	}
	// It was discarded meanwhile.
	info, err := s.info(ctx)
	if err != nil {
		return position{}, err
	}
	return s.before(ctx, info)
}

// live returns the first seqs between after and below of records whose bodies are needed.
func (s *stream) live(ctx context.Context, after, below uint64) ([]uint64, error) {
	if s.o.Live == nil {
		return nil, nil
	}
	all, err := s.o.Live(ctx, s.src, s.name)
	if err != nil {
		return nil, err
	}
	var live []uint64
	for _, first := range all {
		if first > after && first < below {
			live = append(live, first)
		}
	}
	return live, nil
}

// dropped makes the target's stream a dropped one that ends where the source's does.
func (s *stream) dropped(ctx context.Context, info journal.Info) error {
	there, err := s.target(ctx)
	if err != nil {
		return err
	}
	s.res.End = info.End
	end := position{info.End, info.EndCRC, info.EndTime, info.Epoch}
	switch {
	case there.Epoch == 0:
		err = s.importAs(ctx, journal.Info{UID: info.UID, Epoch: info.Epoch, End: info.End, EndCRC: info.EndCRC, EndTime: info.EndTime})
	case there.Dropped && there.End == info.End && there.EndCRC == info.EndCRC:
		return nil
	case there.End > info.End:
		return fmt.Errorf("%w: its stream goes on to seq %d, the source's was dropped at %d", ErrTarget, there.End, info.End)
	case there.Dropped || there.UID != info.UID:
		// Of an earlier life. What counts of a dropped stream is where the next one goes on.
		return fmt.Errorf("%w: it has an earlier life of the stream, dropped or not; copy into an empty store", ErrTarget)
	default:
		if err = s.importAs(ctx, journal.Info{UID: info.UID, Epoch: info.Epoch}); err == nil {
			err = s.skipTo(ctx, end)
		}
	}
	if err != nil {
		return err
	}
	return s.settle(ctx, s.h.Drop)
}
