package queue

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sampleEvents is one of each kind, with every field in use, by name.
func sampleEvents() map[string]Event {
	at := int64(1_700_000_000_000)
	spans := []Span{{10, 5}, {100, 1}, {50, 7}}
	cfg := Config{MaxDeliveries: 3, DeadLetter: "dlq", Retention: time.Hour}.WithDefaults()
	return map[string]Event{
		"added-plain": {Kind: KindAdded, At: at, Added: &Added{Count: 500, Uniform: 100}},
		"added-full": {Kind: KindAdded, At: at, Added: &Added{
			Producer: Producer{"orders", "incarnation"}, ProducerSeq: 7, ProducerLast: 11, Count: 4, NotBefore: at + 5000, Sizes: []uint32{1, 2, 3, 1 << 20},
			Specials: []Special{
				{Index: 0, NotBefore: at + 1000, Priority: 9},
				{Index: 2, ExpiresAt: at - 1, KeyHash: HashKey([]byte("customer")), Foreign: true},
				{Index: 3, DedupHash: HashDedupID([]byte("id")), ExpiresAt: at + 1},
			}}},
		"added-alike": {Kind: KindAdded, At: at, Added: &Added{Count: 3, Uniform: 9, Specials: []Special{
			{Index: 1, NotBefore: at + 1, KeyHash: 1}, {Index: 2, NotBefore: at + 1, KeyHash: 1}}}},
		"leased":          {Kind: KindLeased, At: at, Spans: spans, Lease: 77, Announces: true, Visibility: 60_000},
		"leased-session":  {Kind: KindLeased, At: at, Spans: spans[:1], Lease: 77, Announces: true, Session: 0x1122334455667788},
		"started":         {Kind: KindStarted, At: at, Spans: spans},
		"returned":        {Kind: KindReturned, At: at, Spans: spans, Cause: CauseNack, Counted: true, Due: at + 1234},
		"returned-lost":   {Kind: KindReturned, At: at, Spans: spans[:1], Cause: CauseDisconnected, Lost: true},
		"deleted":         {Kind: KindDeleted, At: at, Spans: spans},
		"expired":         {Kind: KindExpired, At: at, Spans: spans},
		"purged":          {Kind: KindPurged, At: at, Spans: []Span{{1, 1 << 40}}},
		"dropped":         {Kind: KindDropped, At: at, Spans: spans},
		"parked":          {Kind: KindParked, At: at, Spans: spans, Cause: CauseLeaseExpired, Counted: true},
		"moving":          {Kind: KindMoving, At: at, Spans: spans, Target: "dlq", Reason: ReasonMaxDeliveries, Cause: CauseNack, Counted: true},
		"moved":           {Kind: KindMoved, At: at, Spans: spans},
		"unparked":        {Kind: KindUnparked, At: at, Spans: spans},
		"configured":      {Kind: KindConfigured, At: at, Config: &cfg},
		"paused":          {Kind: KindPaused, At: at, Paused: true},
		"relocated":       {Kind: KindRelocated, At: at, Spans: spans},
		"producer-closed": {Kind: KindProducerClosed, At: at, Producer: Producer{"p", "i"}},
		"suppressed":      {Kind: KindSuppressed, At: at, Producer: Producer{"p", "i"}, ProducerSeq: 12},
		"undone":          {Kind: KindUndone, At: at, Spans: spans[:1], Producer: Producer{"p", "i"}, ProducerSeq: 3},
	}
}

// Every event decodes as it was, and as it was written by the first version of the format: the bytes are in testdata and never change
// (design §3, Formats). Write those of new events by -args -update.
func TestEventFormat(t *testing.T) {
	for name, e := range sampleEvents() {
		b := AppendEvent([]byte("prefix"), &e)
		b = b[len("prefix"):]
		path := filepath.Join("testdata", "events", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSpace(string(golden)); hex.EncodeToString(b) != want {
			t.Errorf("%s: encodes as\n%x, want\n%s", name, b, want)
		}
		d, err := DecodeEvent(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(d, e) {
			t.Errorf("%s: decodes as\n%+v, want\n%+v", name, d, e)
		}
		if e.Kind != KindConfigured && len(b) > 140 {
			t.Errorf("%s: takes %d bytes", name, len(b))
		}
	}
}

// Hashes are part of the format.
func TestHashes(t *testing.T) {
	for key, want := range map[string]uint64{"a": 0x2ef7d1316eb86f71, "customer-17": 0x320700711661b281, "\x00\xff": 0x113845c591e989e0} {
		if got := HashKey([]byte(key)); got != want {
			t.Errorf("key %q: %#x, want %#x", key, got, want)
		}
	}
	if got := fmt.Sprintf("%x", HashDedupID([]byte("id"))); got != "a56145270ce6b3bebd1dd012b7394867" {
		t.Errorf("dedup id: %s", got)
	}
}

// A batch of 500 plain messages takes a few bytes of meta, whatever their sizes are if they are the same (G7).
func TestEventSize(t *testing.T) {
	e := Event{Kind: KindAdded, At: 1_700_000_000_000, Added: &Added{Producer: Producer{"0123456789abcdef", "0123456789abcdef"}, ProducerSeq: 1 << 30, ProducerLast: 1<<30 + 499, Count: 500, Uniform: 100}}
	if n := len(AppendEvent(nil, &e)); n > 60 {
		t.Errorf("an Added event of 500 messages takes %d bytes", n)
	}
	l := Event{Kind: KindLeased, At: 1_700_000_000_000, Lease: 1 << 40, Spans: []Span{{1 << 40, 500}}}
	if n := len(AppendEvent(nil, &l)); n > 30 {
		t.Errorf("a Leased event of one run takes %d bytes", n)
	}
}

// What cannot have been written is refused, and so is what a later version wrote (design §3, Formats; G11).
func TestDecodeEventRefuses(t *testing.T) {
	for name, e := range sampleEvents() {
		b := AppendEvent(nil, &e)
		for i := range b {
			if _, err := DecodeEvent(b[:i]); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("%s: cut at %d: %v", name, i, err)
			}
		}
		if _, err := DecodeEvent(append(bytes.Clone(b), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s with a byte behind it: %v", name, err)
		}
		newer := bytes.Clone(b)
		newer[1] = eventVersion + 1
		if e.Kind == KindLeased {
			newer[1] = leasedVersion + 1
		}
		if _, err := DecodeEvent(newer); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("%s of a newer version: %v", name, err)
		}
	}
	if _, err := DecodeEvent([]byte{byte(KindUndone) + 1, 1, 0}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("unknown kind: %v", err)
	}
	if _, err := DecodeEvent([]byte{0, 1, 0}); !errors.Is(err, ErrMalformed) {
		t.Errorf("kind 0: %v", err)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range sampleEvents() {
		f.Add(AppendEvent(nil, &e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEvent(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("%v", err)
			}
			return
		}
		// What is accepted is written again as the same event, and can be given to a core without harm.
		again, err := DecodeEvent(AppendEvent(nil, &e))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v is written as %+v, %v", e, again, err)
		}
		c := busyCore(t)
		if err := c.Apply(c.NextSeq(), &e); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		c.Stored(c.stored+1, c.NextSeq()-1, 100)
		c.Recovered(e.At)
		c.Tick(e.At + 10_000)
		if bad := invariants(c); bad != "" {
			t.Fatalf("after %+v: %s", e, bad)
		}
	})
}

// busyCore returns a core, before Recovered, with messages in all states from seq 1 on.
func busyCore(t testing.TB) *Core {
	t.Helper()
	c, err := New(Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(1_000)
	for _, e := range []Event{
		{Kind: KindAdded, At: at, Added: &Added{Count: 30, Uniform: 10, Producer: Producer{"p", "i"}, ProducerSeq: 1, ProducerLast: 30, Specials: []Special{
			{Index: 3, NotBefore: 60_000}, {Index: 4, KeyHash: 5, Priority: 3}, {Index: 5, KeyHash: 5, ExpiresAt: 9_000}, {Index: 6, DedupHash: [16]byte{1}, Foreign: true}}}},
		{Kind: KindLeased, At: at, Lease: 1, Spans: []Span{{1, 3}, {10, 5}, {5, 1}}},
		{Kind: KindReturned, At: at, Cause: CauseNack, Counted: true, Due: 30_000, Spans: []Span{{1, 1}}},
		{Kind: KindParked, At: at, Cause: CauseNack, Counted: true, Spans: []Span{{2, 1}}},
		{Kind: KindMoving, At: at, Target: "dlq", Spans: []Span{{3, 1}}},
		{Kind: KindReturned, At: at, Cause: CauseDisconnected, Lost: true, Spans: []Span{{10, 2}}},
	} {
		if err := c.Apply(c.NextSeq(), &e); err != nil {
			t.Fatal(err)
		}
	}
	c.Stored(1, c.NextSeq()-1, 400)
	return c
}

// Bodies come out of a record's body part as they went in, however it is cut into chunks.
func TestBodyEntries(t *testing.T) {
	f1, _ := frameOf(message.Message{Body: []byte("one")}, message.Message{Body: []byte("two")})
	f2, _ := frameOf(message.Message{Body: bytes.Repeat([]byte("x"), 300)})
	e := Event{Kind: KindRelocated, Spans: []Span{{7, 2}, {90, 1}}, Frames: [][]byte{f1, f2}}
	whole := bytes.Join(Body(&e), nil)
	for size := 1; size <= len(whole); size += 7 {
		var body [][]byte
		for rest := whole; len(rest) > 0; {
			n := min(size, len(rest))
			body, rest = append(body, rest[:n], nil), rest[n:]
		}
		i := 0
		for be, err := range BodyEntries(body) {
			if err != nil {
				t.Fatalf("chunks of %d: %v", size, err)
			}
			if be.Span != e.Spans[i] || !bytes.Equal(be.Frame, e.Frames[i]) {
				t.Fatalf("chunks of %d: entry %d is %+v", size, i, be.Span)
			}
			i++
		}
		if i != 2 {
			t.Fatalf("chunks of %d: %d entries", size, i)
		}
	}
	for cut := 1; cut < len(whole); cut++ {
		failed := false
		for _, err := range BodyEntries([][]byte{whole[:cut]}) {
			failed = failed || errors.Is(err, ErrMalformed)
		}
		if !failed && cut != entryHeaderSize+len(f1) {
			t.Fatalf("cut at %d: no error", cut)
		}
	}
	if got := Body(&Event{Kind: KindDeleted}); got != nil {
		t.Errorf("a Deleted event has the body %v", got)
	}
}

func FuzzBodyEntries(f *testing.F) {
	frame, _ := frameOf(message.Message{Body: []byte("one")})
	e := Event{Kind: KindAdded, Spans: []Span{{7, 1}}, Frames: [][]byte{frame}}
	f.Add(bytes.Join(Body(&e), nil), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = min(max(cut, 0), len(b))
		total := 0
		for be, err := range BodyEntries([][]byte{b[:cut], b[cut:]}) {
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Fatal(err)
				}
				return
			}
			if be.Seq == 0 || be.Count == 0 || uint64(message.Count(be.Frame)) != be.Count {
				t.Fatalf("entry %+v", be)
			}
			total += entryHeaderSize + len(be.Frame)
		}
		if total != len(b) {
			t.Fatalf("%d bytes of %d are in entries", total, len(b))
		}
	})
}
