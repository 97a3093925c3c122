package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// A checkpoint is everything that is known of the streams: heads, parts, and where records are. With it, opening reads the log from the
// checkpoint's position on. There are two files with the same content, written one after the other, so that one is always whole.
var checkpointFiles = [2]string{"CHECKPOINT-0", "CHECKPOINT-1"}

const (
	checkpointMagic   = "HFCK"
	checkpointVersion = 1
)

// checkpoint is one that was read.
type checkpoint struct {
	gen     uint64
	pos     position
	nextNo  uint32
	segs    map[uint64]segInfo
	streams []*stream
	size    int
	stale   [2]bool // which files are not this one: older, damaged or missing
}

// segInfo is what a checkpoint says of a segment.
type segInfo struct {
	salt uint64
	size int64
}

// appendStream encodes a stream as it is.
func (st *stream) append(b []byte) []byte {
	st.mu.Lock()
	defer st.mu.Unlock()
	le := binary.LittleEndian
	b = le.AppendUint32(b, st.no)
	b = appendString(b, st.name)
	h := st.acked
	b = appendHead(b, &h)
	b = le.AppendUint64(b, st.ackedAt)
	if d := st.damage; d == nil {
		b = append(b, 0)
	} else {
		m := Missing{}
		if len(d.Missing) > 0 {
			m = d.Missing[0]
		}
		what := d.What[:min(len(d.What), 255)]
		b = appendString(append(b, 1), what)
		b = le.AppendUint64(b, m.From)
		b = le.AppendUint64(b, m.To)
	}
	b = binary.AppendUvarint(b, uint64(len(st.parts)))
	for name, p := range st.parts {
		b = appendString(b, name)
		b = binary.AppendUvarint(b, p.seg.number)
		b = binary.AppendUvarint(b, uint64(p.off))
		b = binary.AppendUvarint(b, uint64(p.size))
		b = binary.AppendUvarint(b, p.op)
	}
	return st.index.append(b)
}

func (c *cursor) stream(seg func(uint64) *segment) *stream {
	no := c.u32()
	st := newStream(c.str(), no)
	st.acked, st.ackedAt = c.head(), c.u64()
	if c.u8() == 1 {
		what := c.str()
		st.damage = &LossError{What: what, Missing: []Missing{{Stream: st.name, From: c.u64(), To: c.u64()}}}
	}
	for n := c.uvarint(); n > 0 && !c.short; n-- {
		name := c.str()
		p := part{seg: seg(c.uvarint()), off: int64(c.uvarint()), size: uint32(c.uvarint()), op: c.uvarint(), payload: uint32(1 + len(name))}
		st.parts[name] = p
	}
	st.index = c.index(seg)
	return st
}

// readCheckpoint returns the newer intact checkpoint. seg gives the segment of a number.
func readCheckpoint(f vfs.FS, dir string, seg func(uint64) *segment) (*checkpoint, error) {
	var best []byte
	var gens [len(checkpointFiles)]uint64 // 0: not intact
	var causes []error
	for i, name := range checkpointFiles {
		b, err := vfs.ReadFile(f, filepath.Join(dir, name))
		if err != nil && !isNotExist(err) {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		var ok bool
		if err == nil {
			if b, ok = unseal(b, checkpointMagic); !ok {
				err = errors.New("checksum does not match")
			}
		}
		if err != nil {
			causes = append(causes, fmt.Errorf("%s: %w", name, err))
			continue
		}
		c := cursor{b: b}
		if v := c.u8(); v > checkpointVersion {
			return nil, fmt.Errorf("%s is of version %d, this binary reads up to %d: %w", name, v, checkpointVersion, journal.ErrNewerFormat)
		}
		if gens[i] = c.u64(); best == nil || gens[i] > gens[0] {
			best = b
		}
	}
	if best == nil {
		return nil, damagedFile(checkpointFiles[0]+" and "+checkpointFiles[1], "the checkpoint is lost",
			fmt.Errorf("%w (%w; %w)", errNoCheckpoint, causes[0], causes[1]))
	}
	ck, err := decodeCheckpoint(best, seg)
	if err != nil {
		return nil, err
	}
	for i, gen := range gens {
		ck.stale[i] = gen != ck.gen
	}
	return ck, nil
}

func decodeCheckpoint(b []byte, seg func(uint64) *segment) (*checkpoint, error) {
	c := cursor{b: b}
	c.u8()
	ck := &checkpoint{gen: c.u64(), pos: c.position(), nextNo: c.u32(), segs: map[uint64]segInfo{}, size: len(b)}
	for n := c.uvarint(); n > 0 && !c.short; n-- {
		ck.segs[c.u64()] = segInfo{salt: c.u64(), size: int64(c.u64())}
	}
	for n := c.uvarint(); n > 0 && !c.short; n-- {
		ck.streams = append(ck.streams, c.stream(seg))
	}
	if c.short || len(c.b) > 0 {
		return nil, damagedFile(checkpointFiles[0], "malformed", nil)
	}
	return ck, nil
}

// encodeCheckpoint encodes the state of all streams, of which all that is behind pos may have more. It returns the last batch that any of
// them has.
func (j *Journal) encodeCheckpoint(gen uint64, pos position) ([]byte, uint64) {
	le := binary.LittleEndian
	b := make([]byte, 12, 1<<16)
	b = append(b, checkpointVersion)
	b = le.AppendUint64(b, gen)
	b = appendPosition(b, pos)
	j.mu.RLock()
	b = le.AppendUint32(b, j.nextNo)
	j.mu.RUnlock()
	j.files.mu.Lock()
	b = binary.AppendUvarint(b, uint64(len(j.files.segs)))
	for n, s := range j.files.segs {
		b = le.AppendUint64(b, n)
		b = le.AppendUint64(b, s.salt)
		b = le.AppendUint64(b, uint64(s.size.Load()))
	}
	j.files.mu.Unlock()
	var last uint64
	all := j.allStreams()
	var some []*stream
	for _, st := range all {
		st.mu.Lock()
		if st.acked.epoch > 0 {
			some = append(some, st)
		}
		st.mu.Unlock()
	}
	b = binary.AppendUvarint(b, uint64(len(some)))
	for _, st := range some {
		b = st.append(b)
		st.mu.Lock()
		last = max(last, st.ackedAt)
		st.mu.Unlock()
	}
	seal(b, checkpointMagic)
	return b, last
}

// saveCheckpoint writes a checkpoint. Only maintainLoop, open and Close call it.
func (j *Journal) saveCheckpoint(ctx context.Context) error {
	life := j.life.Load()
	pos := j.durablePos()
	b, last := j.encodeCheckpoint(j.ck.gen+1, pos)
	if last > j.durable.Load() {
		// A stream was shown what is only buffered: the checkpoint must not be ahead of the log.
		o := &op{kind: opSync}
		if err := j.do(ctx, o); err != nil {
			return err
		}
	}
	if j.life.Load() != life {
		return nil // of a log that was broken meanwhile
	}
	j.ck.gen++ // also if only one file has it
	// The only one that is what the store needs is not touched before the other one is durable.
	order := [...]int{0, 1}
	if j.ck.stale[1] {
		order = [...]int{1, 0}
	}
	for _, i := range order {
		j.ck.stale[i] = true
		if err := overwrite(j.fs, j.dir, checkpointFiles[i], b); err != nil {
			return fmt.Errorf("write %s: %w", checkpointFiles[i], err)
		}
		j.ck.stale[i] = false
	}
	j.ck.pos, j.ck.size = pos, len(b)
	j.stats.checkpoints.Add(1)
	return nil
}
