package durable

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
)

// The bytes of version 1. They must stay readable for ever.
var golden = []struct {
	hex string
	e   event
}{
	{"01620470617973016963", event{}}, // a byte too many, see below
	{"0162047061797301" + "69", event{kind: kindBorn, id: "pays", incarnation: "i"}},
	{"0173ac0202036f6e6500", event{kind: kindSent, first: 300, bodies: [][]byte{[]byte("one"), {}}}},
	{"016402010103", event{}}, // the second range has no length, see below
	{"0164020102" + "ac0201", event{kind: kindSettled, settled: []delivery.SeqRange{{First: 1, Last: 2}, {First: 300, Last: 300}}}},
}

func TestGoldenEvents(t *testing.T) {
	for _, g := range golden {
		b, err := hex.DecodeString(g.hex)
		if err != nil {
			t.Fatal(err)
		}
		e, err := codec{}.DecodeMeta(b)
		if g.e.kind == 0 {
			if err == nil {
				t.Errorf("%s decoded as %+v", g.hex, e)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(e, g.e) {
			t.Errorf("%s decoded as %+v, %v", g.hex, e, err)
		}
		if again, err := (codec{}).AppendMeta(nil, g.e); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%+v encoded as %x, %v, want %s", g.e, again, err, g.hex)
		}
		b[0]++
		if _, err := (codec{}).DecodeMeta(b); !errors.Is(err, journal.ErrNewerFormat) {
			t.Errorf("version %d: %v", b[0], err)
		}
	}
}

func TestGoldenSnapshot(t *testing.T) {
	s := snapshot{id: "pays", incarnation: "i", next: 301, pending: []delivery.StoredMessage{{Seq: 7, Body: []byte("seven")}, {Seq: 300, Body: []byte{}}}}
	var b []byte
	for c := range s.chunks {
		b = append(b, c...)
	}
	if got := hex.EncodeToString(b); got != "01047061797301"+"69ad02020705736576656e"+"ac0200" {
		t.Errorf("snapshot is %s", got)
	}
	if again, err := parseSnapshot(b); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("read as %+v, %v", again, err)
	}
	large := snapshot{id: "p", incarnation: "i", next: 9, pending: []delivery.StoredMessage{{Seq: 1, Body: make([]byte, 200_000)}, {Seq: 2, Body: make([]byte, 10)}}}
	b = nil
	for c := range large.chunks {
		if len(c) > chunkSize {
			t.Errorf("a chunk of %d bytes", len(c))
		}
		b = append(b, c...)
	}
	if again, err := parseSnapshot(b); err != nil || !reflect.DeepEqual(again, large) {
		t.Errorf("read as %d messages, %v", len(again.pending), err)
	}
}

// Whatever the bytes are, decoding neither panics nor allocates more than they are, and what decodes
// encodes to something that decodes to the same.
func FuzzEvent(f *testing.F) {
	for _, g := range golden {
		b, _ := hex.DecodeString(g.hex)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseSnapshot(b)
		e, err := codec{}.DecodeMeta(b)
		if err != nil {
			return
		}
		again, err := codec{}.AppendMeta(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		e2, err := codec{}.DecodeMeta(again)
		if err != nil || !reflect.DeepEqual(e, e2) {
			t.Fatalf("%+v became %+v, %v", e, e2, err)
		}
	})
}
