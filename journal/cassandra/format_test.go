package cassandra

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// §3: what is stored as bytes reads as it was written, in the form of version 1 for ever.
func TestFormat(t *testing.T) {
	fences := []fence{{3, 10, 0xabcdef01}, {7, 1 << 40, 1}}
	dir := directory{parts: map[string]partRef{"b": {slot: 300, id: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, crc: 9}, "a/1": {slot: 1}}, trash: []int64{5, 200}}
	gone := spans{{From: 1, To: 1}, {From: 5, To: 700}, {From: 1 << 50, To: 1<<50 + 3}}
	for _, c := range []struct {
		what, golden string
		bytes        []byte
		decode       func(b []byte) (any, error)
		want         any
	}{
		{
			"fences", "0000000000000003000000000000000aabcdef010000000000000007000001000000000000000001", encodeFences(fences),
			func(b []byte) (any, error) { return decodeFences(b) }, fences,
		},
		{
			"directory", "010203612f3101000000000000000000000000" + "0162ac02010203040506070800000009" + "05c801", dir.encode(nil),
			func(b []byte) (any, error) { return decodeDirectory(b) }, dir,
		},
		{
			"gone", "010004b705c4faffffffffff0103", gone.encode(),
			func(b []byte) (any, error) { s, _, err := decodeGone(b); return s, err }, gone,
		},
	} {
		if got := hex.EncodeToString(c.bytes); got != c.golden && len(c.golden) > 0 {
			t.Errorf("%s are stored as\n%s, want\n%s", c.what, got, c.golden)
		}
		golden, err := hex.DecodeString(c.golden)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.decode(golden); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s read as %+v, %v, want %+v", c.what, got, err, c.want)
		}
	}
	if _, all, err := decodeGone(allGone); !all || err != nil {
		t.Errorf("all gone: %v, %v", all, err)
	}
	if _, err := decodeDirectory([]byte{directoryVersion + 1}); !errors.Is(err, journal.ErrNewerFormat) {
		t.Errorf("a directory of a later version: %v", err)
	}
	if d, err := decodeDirectory(dir.encode(map[int64]bool{77: true})); err != nil || len(d.trash) != 3 {
		t.Errorf("a part being written is trash until it is named: %+v, %v", d, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 1, 1, 'x', 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 4, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeDirectory(b); err == nil && len(b) > 0 {
			if again, err := decodeDirectory(d.encode(nil)); err != nil || !reflect.DeepEqual(again, d) {
				t.Errorf("%x: %+v became %+v, %v", b, d, again, err)
			}
		}
		if s, all, err := decodeGone(b); err == nil && !all {
			if again, _, err := decodeGone(s.encode()); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("%x: %v became %v, %v", b, s, again, err)
			}
		}
		if fences, err := decodeFences(b); err == nil && !bytes.Equal(encodeFences(fences), b) {
			t.Errorf("%x became %x", b, encodeFences(fences))
		}
	})
}
