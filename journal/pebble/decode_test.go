package pebble

import (
	"bytes"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// G11: whatever a mark's file holds, it is read as the mark that was written or refused.
func FuzzMark(f *testing.F) {
	m := mark{gen: 3, commit: 17, files: map[string]fingerprint{"MANIFEST-000001": {size: 10, crc: 5}},
		streams: map[uint32]markedStream{1: {name: "q", epoch: 2, end: 9, crc: 7}}}
	f.Add(m.encode(), 0, byte(0))
	f.Add(m.encode(), 20, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if len(b) > 0 && at >= 0 {
			b[at%len(b)] ^= flip
		}
		got, err := decodeMark(b)
		if err != nil {
			return
		}
		again, err := decodeMark(got.encode())
		if err != nil || again.gen != got.gen || again.commit != got.commit || !maps.Equal(again.files, got.files) || !maps.Equal(again.streams, got.streams) {
			t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
		}
	})
}

// G11: whatever a log holds, it is scanned to an end inside it.
func FuzzScanLog(f *testing.F) {
	fs := vfs.NewMem()
	j := mustOpen(f, "store", Options{FS: fs})
	w := acquire(f, j, "q")
	for _, size := range []int{10, 33_000, 10} {
		w.add(2, []byte("meta"), make([]byte, size))
	}
	b, err := readFile(fs, "store/000002.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, uint16(0), byte(0))
	f.Add(b, uint16(30_000), byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16, flip byte) {
		if len(b) > 0 {
			b[int(at)%len(b)] ^= flip
		}
		mem := vfs.NewMem()
		file, err := mem.Create("000002.log", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(bytes.Clone(b)); err != nil {
			t.Fatal(err)
		}
		s, err := scanLog(mem, "000002.log", 2)
		if err != nil || s.end > int64(len(b)) || s.first > s.last && s.last != 0 && !s.damaged {
			t.Fatalf("%+v, %v of %d bytes", s, err, len(b))
		}
	})
}

// G11: whatever a row holds, it is refused or read.
func FuzzRows(f *testing.F) {
	h := head{epoch: 1, end: 2, low: 1, metaTotal: 5}
	f.Add(appendHead(nil, &h))
	f.Add(span{first: 5, last: 9, size: 100, gap: 2}.key(7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHead(b); err == nil && !bytes.Equal(appendHead(nil, &h), b) && b[1] <= 1 {
			t.Fatalf("head %+v is encoded otherwise than %x", h, b)
		}
		if s, err := parseBodyKey(b); err == nil && (s.first > s.last || s.gap >= s.first) {
			t.Fatalf("key %x is read as %+v", b, s)
		}
		_, _, _, _ = openMeta(b)
		_, _ = openPart(b)
		_, _, _ = parseCommit(b)
		_, _ = parseMetaKey(b)
	})
}
