package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

// mark is the high-water mark: how far the store had surely got. What is found at open must
// be at least that, or something was lost behind the engine's back.
type mark struct {
	gen    uint64 // of the mark itself
	commit uint64 // the last batch that was durable
	files  map[string]fingerprint
	// streams is where each stream ended, by number: at or before what commit has.
	streams map[uint32]markedStream
}

// markedStream is what the mark says of a stream.
type markedStream struct {
	name  string
	uid   journal.UID
	epoch uint64
	end   uint64
	crc   uint32
}

// The mark is written in turn into two files, in place: a torn write leaves the other one, and
// a file whose size and blocks do not change is synced without a commit of the file system's own journal.
var markFiles = [2]string{"HIGHWATER-0", "HIGHWATER-1"}

const (
	markMagic   = "HFHW"
	markVersion = 1
	// markAlign is what files of marks are a multiple of, so that they seldom grow.
	markAlign = 4 << 10
)

func (m *mark) encode() []byte {
	le := binary.LittleEndian
	b := append([]byte(markMagic), 0, 0, 0, 0, 0, 0, 0, 0) // length, CRC
	b = append(b, markVersion)
	b = le.AppendUint64(b, m.gen)
	b = le.AppendUint64(b, m.commit)
	b = le.AppendUint32(b, uint32(len(m.files)))
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		b = appendString(b, name)
		b = le.AppendUint64(b, uint64(m.files[name].size))
		b = le.AppendUint32(b, m.files[name].crc)
	}
	b = le.AppendUint32(b, uint32(len(m.streams)))
	for no, s := range m.streams {
		b = le.AppendUint32(b, no)
		b = appendString(b, s.name)
		b = append(b, s.uid[:]...)
		b = le.AppendUint64(b, s.epoch)
		b = le.AppendUint64(b, s.end)
		b = le.AppendUint32(b, s.crc)
	}
	le.PutUint32(b[4:], uint32(len(b)-12))
	le.PutUint32(b[8:], journal.Checksum(b[12:]))
	return b
}

func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

var errNoMark = errors.New("not an intact mark")

func decodeMark(b []byte) (*mark, error) {
	le := binary.LittleEndian
	if len(b) < 13 || string(b[:4]) != markMagic || uint64(le.Uint32(b[4:])) > uint64(len(b)-12) {
		return nil, errNoMark
	}
	b, crc := b[12:12+le.Uint32(b[4:])], le.Uint32(b[8:])
	if journal.Checksum(b) != crc {
		return nil, errNoMark
	}
	r := cursor{b: b}
	if v := r.bytes(1)[0]; v > markVersion {
		return nil, fmt.Errorf("high-water mark of version %d, this binary reads up to %d: %w", v, markVersion, journal.ErrNewerFormat)
	}
	m := &mark{gen: r.u64(), commit: r.u64(), files: map[string]fingerprint{}, streams: map[uint32]markedStream{}}
	for n := r.u32(); n > 0 && !r.short; n-- {
		name := r.str()
		m.files[name] = fingerprint{size: int64(r.u64()), crc: r.u32()}
	}
	for n := r.u32(); n > 0 && !r.short; n-- {
		no := r.u32()
		s := markedStream{name: r.str()}
		copy(s.uid[:], r.bytes(16))
		s.epoch, s.end, s.crc = r.u64(), r.u64(), r.u32()
		m.streams[no] = s
	}
	if r.short {
		return nil, errNoMark
	}
	return m, nil
}

// cursor reads fields; short is set where there were fewer bytes than that.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if n > len(c.b) {
		c.short = true
		return make([]byte, n)
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u32() uint32 { return binary.LittleEndian.Uint32(c.bytes(4)) }
func (c *cursor) u64() uint64 { return binary.LittleEndian.Uint64(c.bytes(8)) }
func (c *cursor) str() string { return string(c.bytes(int(c.bytes(1)[0]))) }

// readMark returns the newer intact mark, or nil where the directory has none; found tells whether
// there is a file of one at all.
func readMark(fs vfs.FS, dir string) (m *mark, found bool, err error) {
	for _, name := range markFiles {
		b, err := readFile(fs, fs.PathJoin(dir, name))
		if errors.Is(err, os.ErrNotExist) {
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
func writeMark(fs vfs.FS, dir string, m *mark) error {
	name := markFiles[m.gen%2]
	b := m.encode()
	if n := len(b) % markAlign; n > 0 {
		b = append(b, make([]byte, markAlign-n)...)
	}
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.SyncData()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// writeFile puts a file in place durably, all of it or none.
func writeFile(fs vfs.FS, dir, name string, data []byte) error {
	tmp := fs.PathJoin(dir, name+".new")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(tmp, fs.PathJoin(dir, name))
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
