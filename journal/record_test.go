package journal_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

func sample() *journal.Record {
	return &journal.Record{
		Header: journal.Header{
			UID: journal.UID{1, 2, 3, 15: 16}, Epoch: 7, First: 100, Count: 3, Kind: journal.KindEvents, Time: 1_800_000_000_123,
		},
		Meta: []byte("meta"),
		Body: [][]byte{[]byte("bo"), nil, []byte("dy")},
	}
}

// goldenHeader is the header of sample, behind a record with CRC 0x01020304, as version 1 writes it. It must
// never change: stores hold it.
const goldenHeader = "01010000010203000000000000000000000000100700000000000000640000000000000003000000" +
	"000000007b505c18a301000004000000040000009510071b50c93f2604030201aec2cf2d"

// §3: the record format is fixed. §4: a header tells its parts' CRCs.
func TestHeaderGolden(t *testing.T) {
	r := sample()
	if err := r.Seal(0x01020304); err != nil {
		t.Fatal(err)
	}
	b := journal.AppendHeader(nil, &r.Header)
	if got := hex.EncodeToString(b); got != goldenHeader {
		t.Fatalf("encoded as\n%s, want\n%s", got, goldenHeader)
	}
	h, err := journal.ParseHeader(b)
	if err != nil || h != r.Header {
		t.Fatalf("decoded as %+v, %v", h, err)
	}
	if h.Last() != 102 || h.Size() != journal.HeaderSize+8 {
		t.Fatalf("last %d, size %d", h.Last(), h.Size())
	}
	if err := errors.Join(h.VerifyMeta([]byte("meta")), h.VerifyBody([]byte("body"))); err != nil {
		t.Fatal(err)
	}
}

// §4: every changed byte of a header or a part is found.
func TestDamageIsFound(t *testing.T) {
	r := sample()
	if err := r.Seal(5); err != nil {
		t.Fatal(err)
	}
	good := journal.AppendHeader(nil, &r.Header)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x10
		want := journal.ErrCorrupt
		if i == 0 {
			want = journal.ErrNewerFormat
		}
		if _, err := journal.ParseHeader(bad); !errors.Is(err, want) {
			t.Errorf("byte %d changed: %v, want %v", i, err, want)
		}
	}
	for n := range good {
		if _, err := journal.ParseHeader(good[:n]); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want ErrCorrupt", n, err)
		}
	}
	for _, bad := range []string{"", "met", "metb", "meta "} {
		if err := r.VerifyMeta([]byte(bad)); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("meta %q: %v, want ErrCorrupt", bad, err)
		}
		if err := r.VerifyBody([]byte(bad)); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("body %q: %v, want ErrCorrupt", bad, err)
		}
	}
}

// §4: the chain finds what is missing, foreign, stale or out of order, and names the place.
func TestChain(t *testing.T) {
	first := sample()
	if err := first.Seal(9); err != nil {
		t.Fatal(err)
	}
	next := func(change func(r *journal.Record)) *journal.Record {
		r := sample()
		r.First, r.Epoch, r.Time = first.Last()+1, first.Epoch, first.Time
		change(r)
		if r.PrevCRC == 0 {
			r.PrevCRC = first.CRC
		}
		if err := r.Seal(r.PrevCRC); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, test := range map[string]struct {
		change func(r *journal.Record)
		place  uint64 // 0: it follows
	}{
		"follows":      {func(*journal.Record) {}, 0},
		"newer epoch":  {func(r *journal.Record) { r.Epoch++ }, 0},
		"later":        {func(r *journal.Record) { r.Time++ }, 0},
		"gap":          {func(r *journal.Record) { r.First += 2 }, 103},
		"overlap":      {func(r *journal.Record) { r.First-- }, 103},
		"other stream": {func(r *journal.Record) { r.UID[0]++ }, 103},
		"other CRC":    {func(r *journal.Record) { r.PrevCRC = first.CRC + 1 }, 103},
		"older epoch":  {func(r *journal.Record) { r.Epoch-- }, 103},
		"earlier":      {func(r *journal.Record) { r.Time-- }, 103},
	} {
		var c, behind journal.Chain
		behind.StartAfter(first.UID, first.Last(), first.CRC)
		if err := c.Next(&first.Header); err != nil {
			t.Fatalf("the first record: %v", err)
		}
		r := next(test.change)
		err := c.Next(&r.Header)
		var ce *journal.CorruptError
		switch {
		case test.place == 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.place != 0 && (!errors.As(err, &ce) || ce.Seq != test.place || !errors.Is(err, journal.ErrCorrupt)):
			t.Errorf("%s: %v, want a CorruptError at %d", name, err, test.place)
		}
		err = behind.Next(&r.Header)
		if known := name == "older epoch" || name == "earlier"; (err == nil) != (test.place == 0 || known) {
			t.Errorf("%s, with only end and CRC known: %v", name, err)
		}
	}
}

// G11: a record that is too large to be described is refused.
func TestSealTooLarge(t *testing.T) {
	r := sample()
	block := make([]byte, 1<<20)
	r.Body = nil
	for range 4096 {
		r.Body = append(r.Body, block)
	}
	if err := r.Seal(0); !errors.Is(err, journal.ErrTooLarge) {
		t.Fatalf("%v, want ErrTooLarge", err)
	}
}

// G11: what is refused before the store is asked, and with which error.
func TestCheckAppend(t *testing.T) {
	own := journal.Info{UID: sample().UID, Epoch: 7}
	lim := journal.Limits{MaxRecordBytes: journal.HeaderSize + 8}
	reseal := func(r *journal.Record) {
		if err := r.Seal(r.PrevCRC); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		change func(r *journal.Record)
		want   error
	}{
		"good":            {func(*journal.Record) {}, nil},
		"not sealed":      {func(r *journal.Record) { r.CRC++ }, journal.ErrInvalid},
		"changed":         {func(r *journal.Record) { r.Time++ }, journal.ErrInvalid},
		"longer meta":     {func(r *journal.Record) { r.Meta = append(r.Meta, 0) }, journal.ErrInvalid},
		"shorter body":    {func(r *journal.Record) { r.Body = r.Body[1:] }, journal.ErrInvalid},
		"seq 0":           {func(r *journal.Record) { r.First = 0; reseal(r) }, journal.ErrInvalid},
		"no events":       {func(r *journal.Record) { r.Count = 0; reseal(r) }, journal.ErrInvalid},
		"too many events": {func(r *journal.Record) { r.Count = math.MaxUint64; reseal(r) }, journal.ErrInvalid},
		"elsewhere":       {func(r *journal.Record) { r.First++; reseal(r) }, journal.ErrInvalid},
		"other stream":    {func(r *journal.Record) { r.UID[3]++; reseal(r) }, journal.ErrInvalid},
		"older epoch":     {func(r *journal.Record) { r.Epoch--; reseal(r) }, journal.ErrInvalid},
		"newer epoch":     {func(r *journal.Record) { r.Epoch++; reseal(r) }, journal.ErrInvalid},
		"kind 0":          {func(r *journal.Record) { r.Kind = 0; reseal(r) }, journal.ErrInvalid},
		"kind 4":          {func(r *journal.Record) { r.Kind = 4; reseal(r) }, journal.ErrInvalid},
		"too large":       {func(r *journal.Record) { r.Meta = []byte("metas"); reseal(r) }, journal.ErrTooLarge},
	} {
		r := sample()
		reseal(r)
		test.change(r)
		if err := journal.CheckAppend(own, lim, 99, r); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// G11: names.
func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"": false, "q": true, strings.Repeat("x", 200): true, strings.Repeat("x", 201): false,
		"a b/*>~": true, "a\n": false, "a\x7f": false, "ä": false,
	} {
		if err := journal.CheckName("stream", name); (err == nil) != ok || err != nil && !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := journal.CheckPart(journal.Limits{MaxPartBytes: 2}, "p", []byte("abc")); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("a part that is too large: %v", err)
	}
}

// Message ids carry a uid as text.
func TestUIDText(t *testing.T) {
	u := sample().UID
	if got, err := journal.ParseUID(u.String()); err != nil || got != u {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", u.String()[1:], u.String() + "00", strings.Repeat("g", 32)} {
		if _, err := journal.ParseUID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// §12: no input makes the decoder panic, and what it accepts encodes to the same bytes.
func FuzzParseHeader(f *testing.F) {
	golden, err := hex.DecodeString(goldenHeader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(make([]byte, journal.HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= journal.HeaderSize { // or nothing would get past the checksum
			binary.LittleEndian.PutUint32(b[72:], journal.Checksum(b[:72]))
		}
		h, err := journal.ParseHeader(b)
		if err != nil {
			return
		}
		again, err := journal.ParseHeader(journal.AppendHeader(nil, &h))
		if err != nil || again != h {
			t.Fatalf("%+v becomes %+v, %v", h, again, err)
		}
	})
}
