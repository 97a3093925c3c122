package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// position is a place in the log: behind batch n.
type position struct {
	n   uint64
	seg uint64 // number
	off int64
	crc uint32 // of the batch's header
	// first is the first batch of the segment, 0 where the log does not go on there.
	first uint64
}

func appendPosition(b []byte, p position) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, p.n)
	b = le.AppendUint64(b, p.seg)
	b = le.AppendUint64(b, uint64(p.off))
	return le.AppendUint64(le.AppendUint32(b, p.crc), p.first)
}

func (c *cursor) position() position {
	return position{n: c.u64(), seg: c.u64(), off: int64(c.u64()), crc: c.u32(), first: c.u64()}
}

// mark is the high-water mark: how far the store had surely got. What is found at open must be at least that, or something was lost.
type mark struct {
	gen   uint64 // of the mark itself
	clean bool   // the store was closed, and nothing is behind pos
	pos   position
	// checkpoint is the last batch that is in the newest checkpoint.
	checkpoint uint64
	// streams is where each stream was, by number: at or before what pos has.
	streams map[uint32]markedStream
}

// markedStream is what the mark says of a stream.
type markedStream struct {
	name string
	head head
}

// The mark is written in turn into two files, in place: a torn write leaves the other one, and a file whose size and blocks do not
// change is synced without a commit of the file system's own journal.
var markFiles = [2]string{"HIGHWATER-0", "HIGHWATER-1"}

const (
	markMagic   = "HFHW"
	markVersion = 1
)

// seal puts magic, length and CRC before what is in b behind 12 bytes.
func seal(b []byte, magic string) {
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-12))
	binary.LittleEndian.PutUint32(b[8:], journal.Checksum(b[12:]))
}

// unseal returns what seal has sealed.
func unseal(b []byte, magic string) ([]byte, bool) {
	le := binary.LittleEndian
	if len(b) < 13 || string(b[:4]) != magic || uint64(le.Uint32(b[4:])) > uint64(len(b)-12) {
		return nil, false
	}
	c := b[12 : 12+le.Uint32(b[4:])]
	return c, journal.Checksum(c) == le.Uint32(b[8:]) && len(c) > 0
}

func (m *mark) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 12, 256)
	clean := byte(0)
	if m.clean {
		clean = 1
	}
	b = append(b, markVersion, clean)
	b = le.AppendUint64(b, m.gen)
	b = appendPosition(b, m.pos)
	b = le.AppendUint64(b, m.checkpoint)
	b = le.AppendUint32(b, uint32(len(m.streams)))
	for no, s := range m.streams {
		b = le.AppendUint32(b, no)
		b = appendString(b, s.name)
		b = appendHead(b, &s.head)
	}
	seal(b, markMagic)
	return b
}

var errNoMark = errors.New("not an intact mark")

func decodeMark(b []byte) (*mark, error) {
	b, ok := unseal(b, markMagic)
	if !ok {
		return nil, errNoMark
	}
	c := cursor{b: b}
	if v := c.u8(); v > markVersion {
		return nil, fmt.Errorf("high-water mark of version %d, this binary reads up to %d: %w", v, markVersion, journal.ErrNewerFormat)
	}
	m := &mark{clean: c.u8() == 1, gen: c.u64(), pos: c.position(), checkpoint: c.u64(), streams: map[uint32]markedStream{}}
	for n := c.u32(); n > 0 && !c.short; n-- {
		no := c.u32()
		m.streams[no] = markedStream{c.str(), c.head()}
	}
	if c.short {
		return nil, errNoMark
	}
	return m, nil
}

// readMark returns the newer intact mark, or nil where the directory has none; found tells whether there is a file of one at all.
func readMark(f vfs.FS, dir string) (m *mark, found bool, err error) {
	for _, name := range markFiles {
		b, err := vfs.ReadFile(f, filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, true, fmt.Errorf("read %s: %w", name, err)
		}
		found = true
		one, err := decodeMark(b)
		if errors.Is(err, journal.ErrNewerFormat) {
			return nil, true, fmt.Errorf("%s: %w", name, err)
		}
		if err == nil && (m == nil || one.gen > m.gen) {
			m = one
		}
	}
	return m, found, nil
}

// writeMark makes m durable in the file whose turn it is.
func writeMark(f vfs.FS, dir string, m *mark) error {
	name := markFiles[m.gen%2]
	if err := overwrite(f, dir, name, m.encode()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// overwrite writes a file in place, and makes it durable.
func overwrite(f vfs.FS, dir, name string, b []byte) error {
	h, err := f.Open(filepath.Join(dir, name), vfs.Write)
	if err != nil {
		return err
	}
	// To a whole page, so that the file seldom grows.
	pad := zeros[:alignUp(int64(len(b)), pageSize)-int64(len(b))]
	err = h.WriteAt([][]byte{b, pad}, 0)
	if err == nil {
		err = h.Sync()
	}
	return errors.Join(err, h.Close())
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
