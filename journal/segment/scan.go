package segment

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// found is a batch in the log.
type found struct {
	batchHeader
	seg *segment
	off int64
}

func (f *found) end() int64 { return afterBatch(f.off, int64(f.size)) }

func (f *found) position() position {
	return position{n: f.n, seg: f.seg.number, off: f.end(), crc: f.crc, first: f.first}
}

// log is what was found behind the checkpoint.
type logScan struct {
	batches []found // ascending by number
	// proved is the last batch that surely was on stable storage, as the batches say.
	proved uint64
	broken string // where batches follow one another no longer, in words
}

// findSegments makes a segment of each file that says that it is one. Others are returned as free.
func (j *Journal) findSegments(list []vfs.Info, old map[uint64]*segment) (segs map[uint64]*segment, free []*segment, next uint64, err error) {
	segs = map[uint64]*segment{}
	for _, i := range list {
		number, ok := segNumber(i.Name)
		if !ok {
			continue
		}
		next = max(next, number)
		s := &segment{number: number, name: i.Name}
		if o := old[number]; o != nil {
			s = o
		}
		s.size.Store(i.Size)
		h, ok, err := j.readSegHeader(s)
		if err != nil {
			return nil, nil, 0, err
		}
		switch {
		case ok && h.number == number:
			s.salt = h.salt
			segs[number] = s
		case ok:
			free = append(free, s) // a crash came before it was renamed, or after
		default:
			s.salt = 0 // if the checkpoint has it, its header was damaged
			segs[number] = s
		}
	}
	return segs, free, next + 1, nil
}

func (j *Journal) readSegHeader(s *segment) (segHeader, bool, error) {
	f, err := j.fs.Open(filepath.Join(j.dir, s.name), vfs.Read)
	if err != nil {
		return segHeader{}, false, fmt.Errorf("segment %s: %w", s.name, err)
	}
	defer f.Close()
	b := make([]byte, headerBlock)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return segHeader{}, false, fmt.Errorf("segment %s: %w", s.name, err)
	}
	h, ok, err := parseSegHeader(b[:n])
	if err != nil {
		return h, false, fmt.Errorf("segment %s: %w", s.name, err)
	}
	return h, ok, nil
}

// scanLog finds the batches behind a position.
func (j *Journal) scanLog(fl *files, from position, clean *position) (*logScan, error) {
	var tail []*segment
	for _, s := range fl.segs {
		if s.number >= from.seg && s.size.Load() > headerBlock && s.salt != 0 {
			tail = append(tail, s)
		}
	}
	slices.SortFunc(tail, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	var runs [][]found
	for _, s := range tail {
		at := int64(headerBlock)
		if s.number == from.seg {
			at = from.off
		}
		run, err := scanSegment(fl, s, at)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	res := &logScan{}
	last := found{batchHeader: batchHeader{n: from.n, crc: from.crc}}
	for i, s := range tail {
		run := runs[i]
		end := int64(headerBlock)
		if s.number == from.seg {
			end = from.off
		}
		if len(run) > 0 {
			last = run[len(run)-1]
			end = last.end()
		}
		// Where the next segment goes on, or the store was closed, nothing can be behind.
		follows := i+1 < len(tail) && len(runs[i+1]) > 0 && runs[i+1][0].n == last.n+1 && runs[i+1][0].prev == last.crc
		if clean != nil && last.n == clean.n && (end == clean.off || len(run) == 0) {
			follows = true
		}
		if !follows {
			at := end
			if len(run) > 0 {
				at = last.off + batchHeaderSize // where bytes are missing, the next one is before its place
			}
			more, err := searchSegment(fl, s, at)
			if err != nil {
				return nil, err
			}
			if len(more) > 0 && res.broken == "" {
				res.broken = fmt.Sprintf("file %s is damaged at byte %d", s.name, end)
			}
			runs[i] = append(run, more...)
		}
	}
	res.join(runs)
	return res, nil
}

// join puts the batches of segments, ascending, together, without those that are void.
func (l *logScan) join(runs [][]found) {
	void := ^uint64(0) // what later segments say
	for i := len(runs) - 1; i >= 0; i-- {
		first := void
		for _, f := range runs[i] {
			l.proved = max(l.proved, f.durable)
			first = min(first, f.first)
			if f.n < void {
				l.batches = append(l.batches, f)
			}
		}
		void = min(void, first)
	}
	slices.SortStableFunc(l.batches, func(a, b found) int { return cmp.Compare(a.n, b.n) })
}

// scanSegment reads the batches that follow one another from an offset on.
func scanSegment(fl *files, s *segment, at int64) ([]found, error) {
	var w window
	var run []found
	for at+batchHeaderSize <= s.size.Load() {
		b, err := w.get(fl, s, at, batchHeaderSize)
		if errors.Is(err, journal.ErrCorrupt) {
			break // it ends
		}
		if err != nil {
			return nil, err
		}
		h, ok := parseBatch(b, s.salt)
		if !ok || len(run) > 0 && (h.n != run[len(run)-1].n+1 || h.prev != run[len(run)-1].crc) {
			break
		}
		f := found{h, s, at}
		run = append(run, f)
		at = f.end()
	}
	return run, nil
}

var magicBytes = binary.LittleEndian.AppendUint32(nil, batchMagic)

// searchSegment looks for batches behind a place where there should be one.
func searchSegment(fl *files, s *segment, at int64) ([]found, error) {
	const step = 1 << 20
	var all []found
	buf := make([]byte, step)
	f, err := fl.handle(s)
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w", s.name, err)
	}
	for at < s.size.Load() {
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("segment %s: %w", s.name, err)
		}
		if n < batchHeaderSize {
			break
		}
		next := at + int64(n-batchHeaderSize+1)
		// At any byte: where one is missing, all behind it is not where it was.
		for k := 0; ; k++ {
			i := bytes.Index(buf[k:n], magicBytes)
			if k += i; i < 0 || k+batchHeaderSize > n {
				break
			}
			if h, ok := parseBatch(buf[k:n], s.salt); ok {
				b := found{h, s, at + int64(k)}
				all = append(all, b)
				next = b.off + int64(b.size)
				break
			}
		}
		at = next
	}
	return all, nil
}

// verifyBatch tells whether all of a batch is there as it was written, bodies included.
func verifyBatch(fl *files, f *found) (bool, error) {
	b := make([]byte, f.size)
	err := fl.readAt(f.seg, b, f.off)
	if errors.Is(err, journal.ErrCorrupt) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	at := int64(batchHeaderSize)
	for range f.entries {
		e, ok := parseEntry(b[min(at, int64(len(b))):])
		if !ok || at+e.size() > int64(len(b)) {
			return false, nil
		}
		pay := b[at+entryHeaderSize:][:e.payload]
		body := b[at+entryHeaderSize+int64(e.payload):][:e.body]
		if journal.Checksum(pay) != e.payCRC || e.body > 0 && journal.Checksum(body) != e.bodyCRC {
			return false, nil
		}
		at += e.size()
	}
	return at == int64(len(b)), nil
}
