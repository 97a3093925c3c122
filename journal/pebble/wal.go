package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The engine reads its newest log up to the first chunk that does not verify, and takes that
// for the end: what a crash left unfinished. So here the logs are read before the engine sees them. Every
// batch begins with its number and the number of the last batch that was durable when it was written. A
// batch that stands behind the apparent end and says that a lost one was durable proves damage.

// The log format of the pinned engine version: blocks of 32 KiB, filled with chunks
// that do not cross them. There are two formats of chunks; a new database's first log is of the older
// one. So is the trailer, which ends a closed log.
const (
	walBlock      = 32 << 10
	walHeader     = 19 // CRC 4, length 2, type 1, log number 4, sync offset 8
	walShort      = 11 // the same without the sync offset
	walFull       = 9
	walFirst      = 10
	walMiddle     = 11
	walLast       = 12
	walOlder      = 4 // types of the older format are less by that
	walTrailer    = walFull - walOlder
	batchOverhead = 12 // sequence number 8, count 4
	opSet         = 1
)

// logScan is what was found in one log.
type logScan struct {
	name   string // base name
	num    uint64
	first  uint64 // number of its first batch, 0 if it has none
	last   uint64 // of the last one before end
	end    int64  // offset behind the last intact batch
	closed bool   // it ends with a trailer, as a log does that is not the newest
	// damaged is set where the log goes on behind end: proof is the highest batch number that a batch behind
	// it says was durable, or that is missing in the sequence.
	damaged bool
	proof   uint64
}

// scanLogs reads all logs of a directory, by ascending number.
func scanLogs(fs vfs.FS, dir string) ([]logScan, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var logs []logScan
	for _, name := range names {
		num, ok := logNumber(name)
		if !ok {
			continue
		}
		s, err := scanLog(fs, fs.PathJoin(dir, name), num)
		if err != nil {
			return nil, fmt.Errorf("read log %s: %w", name, err)
		}
		s.name = name
		logs = append(logs, s)
	}
	slices.SortFunc(logs, func(a, b logScan) int {
		if a.num < b.num {
			return -1
		}
		return 1
	})
	return logs, nil
}

func logNumber(base string) (uint64, bool) {
	digits, ok := strings.CutSuffix(base, ".log")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

func scanLog(fs vfs.FS, path string, num uint64) (logScan, error) {
	s := logScan{num: num}
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return s, err
	}
	defer f.Close()
	var block [walBlock]byte
	sequential, record := true, false // record: inside one
	var begun uint64                  // number of the batch that it is
	for at := int64(0); ; at += walBlock {
		n, err := io.ReadFull(f, block[:])
		if n == 0 && errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return s, err
		}
		b := chunks{b: block[:n], num: uint32(num)}
		for b.next() {
			switch {
			case !sequential:
				s.behind(b.kind, b.payload)
			case b.trailer:
				s.closed = true
				return s, nil
			case (b.kind == walFull || b.kind == walFirst) == record:
				sequential = false
				s.behind(b.kind, b.payload)
			default:
				if !record {
					begun, _, _ = batchNumber(b.payload)
				}
				if record = b.kind == walFirst || b.kind == walMiddle; !record {
					s.take(begun, at+int64(b.off))
				}
			}
		}
		// A chunk that does not verify may be followed by others in the same block: its length may
		// still be right. Beyond it there may be what an earlier use of the file left, with its own number.
		if b.off < n && !zeros(b.b[b.off:]) {
			sequential = false
			for b.skip() {
				for b.next() {
					s.behind(b.kind, b.payload)
				}
			}
		} else if b.off < n && n-b.off >= walHeader {
			sequential = false // zeros where a chunk could be
		}
		if n < walBlock {
			return s, nil
		}
	}
}

// take notes a batch of the intact part, up to its last chunk.
func (s *logScan) take(n uint64, end int64) {
	s.end = end
	if n == 0 {
		return // no batch of this package
	}
	if s.first == 0 {
		s.first = n
	}
	s.last = n
}

// behind notes an intact chunk that stands behind the end.
func (s *logScan) behind(kind byte, payload []byte) {
	if kind != walFull && kind != walFirst {
		return
	}
	if n, durable, ok := batchNumber(payload); ok && n > s.last && durable > s.last {
		s.damaged = true
		s.proof = max(s.proof, durable)
	}
}

// batchNumber reads the row that every batch begins with. payload may be only the beginning.
func batchNumber(payload []byte) (n, durable uint64, ok bool) {
	const size = batchOverhead + 1 + 1 + 1 + 1 + commitValueSize
	if len(payload) < size {
		return 0, 0, false
	}
	p := payload[batchOverhead:]
	if p[0] != opSet || p[1] != 1 || p[2] != kindCommit || p[3] != commitValueSize {
		return 0, 0, false
	}
	return parseCommit(p[4 : 4+commitValueSize])
}

// chunks walks the chunks of a block.
type chunks struct {
	b       []byte
	num     uint32
	off     int // behind the last intact chunk
	kind    byte
	payload []byte
	trailer bool
}

// next moves to the next intact chunk of this log, if one stands at off.
func (c *chunks) next() bool {
	b := c.b[c.off:]
	kind, header, ok := chunkHeader(b)
	if !ok {
		return false
	}
	num := binary.LittleEndian.Uint32(b[7:])
	if b[6] == walTrailer && num == c.num+1 && zeros(b[:6]) {
		c.trailer, c.kind, c.payload = true, kind, nil
		c.off += walShort
		return true
	}
	size := header + int(binary.LittleEndian.Uint16(b[4:]))
	if num != c.num || size > len(b) || maskedCRC(b[6:size]) != binary.LittleEndian.Uint32(b) {
		return false
	}
	c.kind, c.payload = kind, b[header:size]
	c.off += size
	return true
}

// chunkHeader returns the type of a chunk, as that of the newer format, and the size of its header.
func chunkHeader(b []byte) (kind byte, size int, ok bool) {
	if len(b) < walShort || b[6] < walFull-walOlder || b[6] > walLast {
		return 0, 0, false
	}
	if b[6] < walFull {
		return b[6] + walOlder, walShort, true
	}
	return b[6], walHeader, len(b) >= walHeader
}

// skip moves over a chunk that does not verify, to where the next one begins.
func (c *chunks) skip() bool {
	for off := c.off + 1; off < len(c.b); off++ {
		b := c.b[off:]
		if _, _, ok := chunkHeader(b); !ok || binary.LittleEndian.Uint32(b[7:]) != c.num {
			continue
		}
		try := chunks{b: c.b, num: c.num, off: off}
		if try.next() {
			c.off = off
			return true
		}
	}
	return false
}

// maskedCRC is the checksum of a chunk.
func maskedCRC(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), 17) + 0xa282ead8
}

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// logView is the part of the logs that the engine is shown: the log num up to size, and
// none after it.
type logView struct {
	num  uint64
	size int64
}

func (v *logView) hides(base string) bool {
	num, ok := logNumber(base)
	return ok && num > v.num
}

func (v *logView) open(base string, f vfs.File) vfs.File {
	if num, ok := logNumber(base); ok && num == v.num {
		return &shortFile{File: f, left: v.size, size: v.size}
	}
	return f
}

// shortFile is a file that seems to end at size.
type shortFile struct {
	vfs.File
	left, size int64
}

// Read is part of vfs.File.
func (f *shortFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// ReadAt is part of vfs.File.
func (f *shortFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.size {
		return 0, io.EOF
	}
	most := min(int64(len(p)), f.size-off)
	n, err := f.File.ReadAt(p[:most], off)
	if err == nil && most < int64(len(p)) {
		err = io.EOF
	}
	return n, err
}
