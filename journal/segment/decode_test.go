package segment

import (
	"bytes"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// §12: no decoder panics or reads beyond what it is given, and what it takes is what its encoder writes.
func FuzzDecoders(f *testing.F) {
	u := &unit{}
	u.begin(7, &scratch{})
	st := newStream("q", 3)
	st.acked = head{epoch: 2, end: 9, low: 1, op: 5}
	st.index.add(&segment{number: 4}, &slot{first: 1, count: 9, off: 4096, meta: 100, body: 50, alive: true}, 1, ledger{})
	st.damage = &LossError{What: "lost", Missing: []Missing{{Stream: "q", From: 10, To: 12}}}
	u.entry(entry{kind: entPart, stream: 3, op: 6}, func(b []byte) []byte { return appendString(b, "part") }, [][]byte{[]byte("data")})
	h := batchHeader{salt: 5, n: 7, durable: 6, first: 2, size: uint32(u.size), entries: 1}
	h.put(u.buf)
	m := mark{gen: 3, clean: true, pos: position{n: 7, seg: 4, off: 8192}, streams: map[uint32]markedStream{3: {"q", st.acked}}}
	f.Add(u.buf)
	f.Add(u.buf[batchHeaderSize:])
	f.Add(m.encode())
	f.Add(st.append(nil))
	f.Add(segHeader{1, 5}.block())
	f.Add(appendRanges(nil, []journal.Range{{From: 3, To: 9}, {From: 20, To: 20}}))
	f.Add(appendNames(nil, []string{"a", "bc"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := parseBatch(b, 5); ok {
			again := make([]byte, batchHeaderSize)
			h.put(again)
			if !bytes.Equal(again[:52], b[:52]) {
				t.Errorf("batch header: %x decodes to %+v", b[:batchHeaderSize], h)
			}
		}
		if e, ok := parseEntry(b); ok {
			again := make([]byte, entryHeaderSize)
			e.put(again)
			if parsed, ok := parseEntry(again); !ok || parsed != e {
				t.Errorf("entry header: %x decodes to %+v", b[:entryHeaderSize], e)
			}
		}
		if m, err := decodeMark(b); err == nil {
			if again, err := decodeMark(m.encode()); err != nil || again.pos != m.pos || len(again.streams) != len(m.streams) {
				t.Errorf("mark: %+v, again %+v, %v", m, again, err)
			}
		}
		if r, err := parseRanges(b); err == nil {
			if again, err := parseRanges(appendRanges(nil, r)); err != nil || len(again) != len(r) {
				t.Errorf("ranges: %v, again %v, %v", r, again, err)
			}
		}
		if n, err := parseNames(b); err == nil && !bytes.Equal(appendNames(nil, n), b) {
			t.Errorf("names: %q of %x", n, b)
		}
		_, _, _ = parseSegHeader(b)
		seg := func(n uint64) *segment { return &segment{number: n} }
		_, _ = decodeCheckpoint(b, seg)
		c := cursor{b: b}
		s := c.stream(seg)
		if !c.short {
			d := cursor{b: s.append(nil)}
			if again := d.stream(seg); d.short || again.name != s.name || len(again.index.blocks) != len(s.index.blocks) {
				t.Errorf("stream: %+v, again %+v", s, again)
			}
		}
	})
}

// A batch's entries are where the index will look for them, and what the caller gave in large pieces is written from where it is.
func TestBatchLayout(t *testing.T) {
	u := &unit{}
	u.begin(1, &scratch{})
	large, small := random(gatherBytes), []byte("small")
	rec := &journal.Record{Header: journal.Header{First: 1, Count: 1, Kind: journal.KindEvents}, Meta: []byte("meta"), Body: [][]byte{small, large, small}}
	if err := rec.Seal(0); err != nil {
		t.Fatal(err)
	}
	off := u.record(entry{kind: entRecord, stream: 1, op: 1, bodyCRC: rec.BodyCRC}, &rec.Header, rec.Meta, rec.Body)
	var all []byte
	shared := false
	for _, p := range u.pieces {
		if p.ext != nil {
			shared = shared || &p.ext[0] == &large[0]
			all = append(all, p.ext...)
			continue
		}
		all = append(all, u.buf[p.from:p.to]...)
	}
	if int64(len(all)) != u.size || !shared {
		t.Fatalf("%d bytes for a batch of %d, the large piece is written as it is: %v", len(all), u.size, shared)
	}
	s := slot{first: 1, count: 1, meta: journal.HeaderSize + 4, body: rec.BodyLen}
	got, e, err := openRecord(all[off:], &s)
	if err != nil || got.Header != rec.Header || e.body != rec.BodyLen {
		t.Fatalf("%+v, %+v, %v", got, e, err)
	}
	if err := got.VerifyBody(all[off+s.entry():][:e.body]); err != nil {
		t.Error(err)
	}
}
