package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
	"time"
)

func sample() []Message {
	return []Message{
		{},
		{Body: []byte("hello")},
		{Body: []byte{0, 255, 10}, Headers: []Header{{"path", "a/b"}, {"path", ""}}},
		{Body: []byte("x"), Key: "k", DedupID: "d", Delay: 1500 * time.Millisecond, TTL: time.Hour, Priority: 9},
		{Body: bytes.Repeat([]byte("y"), 300), NotBefore: time.UnixMilli(1e12), ExpiresAt: time.UnixMilli(2e12)},
	}
}

func build(ms []Message) []byte {
	var b Builder
	for i := range ms {
		b.Add(&ms[i])
	}
	return b.Finish()
}

func TestFrameRoundTrip(t *testing.T) {
	ms := sample()
	f := build(ms)
	info, err := Check(f, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if info.Count != len(ms) || len(info.Specials) != 2 || info.Specials[0].Index != 3 || info.Sizes == nil {
		t.Fatalf("info %+v", info)
	}
	sum := 0
	c := NewCursor(f)
	for i := range ms {
		raw, ok := c.Next()
		if !ok {
			t.Fatalf("message %d missing", i)
		}
		if int(info.Sizes[i]) != raw.Size() {
			t.Errorf("size %d: %d, want %d", i, info.Sizes[i], raw.Size())
		}
		sum += raw.Size()
		m, err := raw.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if len(ms[i].Body) == 0 {
			m.Body = nil
		}
		if !reflect.DeepEqual(m.Message, ms[i]) {
			t.Errorf("message %d: %+v, want %+v", i, m.Message, ms[i])
		}
	}
	if sum != info.Bytes {
		t.Errorf("bytes %d, want %d", info.Bytes, sum)
	}
	if _, ok := c.Next(); ok {
		t.Error("a message behind the last")
	}
}

func TestFrameSlice(t *testing.T) {
	ms := sample()
	f := build(ms)
	for from := 0; from < len(ms); from++ {
		for n := 1; from+n <= len(ms); n++ {
			s, err := Slice(f, from, n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Check(s, Limits{}); err != nil {
				t.Fatal(err)
			}
			c, d := NewCursor(s), NewCursor(f)
			d.Span(from)
			for range n {
				a, _ := c.Next()
				b, _ := d.Next()
				if !bytes.Equal(a.Body, b.Body) || !bytes.Equal(a.Attrs, b.Attrs) {
					t.Fatal("slice differs")
				}
			}
		}
	}
	if _, err := Slice(f, 3, 3); err == nil {
		t.Error("slice beyond the end accepted")
	}
}

// G11: a damaged frame is refused with a FieldError, wherever the damage is.
func TestFrameDamage(t *testing.T) {
	f := build(sample())
	for i := range f {
		g := bytes.Clone(f)
		g[i] ^= 1
		var fe *FieldError
		if _, err := Check(g, Limits{}); !errors.As(err, &fe) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := Check(f[:i], Limits{}); !errors.As(err, &fe) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func reseal(f []byte) []byte {
	binary.LittleEndian.PutUint32(f, crc32.Checksum(f[4:], castagnoli))
	return f
}

// G11: limits are checked before anything is allocated for what they bound.
func TestFrameLimits(t *testing.T) {
	huge := build([]Message{{Body: []byte("a")}})
	binary.LittleEndian.PutUint32(huge[8:], 1<<31)
	for name, c := range map[string]struct {
		frame []byte
		l     Limits
		field string
	}{
		"body":     {build([]Message{{Body: make([]byte, 11)}}), Limits{MaxBody: 10}, "body"},
		"count":    {build(make([]Message, 3)), Limits{MaxFrameCount: 2}, "frame"},
		"huge":     {reseal(huge), Limits{MaxFrameCount: 1 << 31}, "frame"},
		"headers":  {build([]Message{{Headers: make([]Header, 3)}}), Limits{MaxHeaders: 2}, "header name"},
		"key":      {build([]Message{{Key: string(make([]byte, 257))}}), Limits{}, "key"},
		"priority": {build([]Message{{Priority: 10}}), Limits{}, "priority"},
		"internal": {build([]Message{{}}), Limits{}, ""},
	} {
		_, err := Check(c.frame, c.l)
		var fe *FieldError
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInternalAttributes(t *testing.T) {
	o := Origin{UID: [16]byte{1, 2}, Seq: 7}
	m := Message{Key: "k", DedupID: "d", Delay: time.Second, TTL: time.Hour, Headers: []Header{{"h", "v"}}}
	a, err := Moved(Raw{Attrs: m.appendAttrs(nil)}, o, Hop{"orders", "max-deliveries", 3, 99})
	if err != nil {
		t.Fatal(err)
	}
	a, err = Moved(Raw{Attrs: a}, Origin{Seq: 8}, Hop{"orders.dlq", "redrive", 0, 100})
	if err != nil {
		t.Fatal(err)
	}
	var b Builder
	b.AddRaw(Raw{Attrs: a, Body: []byte("z")})
	f := b.Finish()
	if _, err := Check(f, Limits{}); err == nil {
		t.Error("internal attributes accepted from a client")
	}
	if _, err := Check(f, Limits{Internal: true}); err != nil {
		t.Fatal(err)
	}
	c := NewCursor(f)
	raw, _ := c.Next()
	d, err := raw.Decode()
	if err != nil || !d.HasOrigin || d.Origin != o || len(d.Hops) != 2 || d.Hops[1].Reason != "redrive" ||
		d.Key != "k" || d.DedupID != "" || d.Delay != 0 || d.TTL != 0 || len(d.Headers) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestValidate(t *testing.T) {
	for field, m := range map[string]Message{
		"body":       {Body: make([]byte, DefaultMaxBody+1)},
		"delay":      {Delay: -1},
		"ttl":        {TTL: MaxDelay + 1},
		"priority":   {Priority: -1},
		"key":        {Key: string(make([]byte, 257))},
		"dedup id":   {DedupID: string(make([]byte, 129))},
		"not-before": {Delay: 1, NotBefore: time.UnixMilli(5)},
		"expires-at": {TTL: 1, ExpiresAt: time.UnixMilli(5)},
	} {
		var fe *FieldError
		if err := m.Validate(Limits{}); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// G11: a message that would expire before anybody can receive it is refused, by the client's check and by the broker's.
func TestExpiresFirst(t *testing.T) {
	for _, c := range []struct {
		delay, ttl time.Duration
		ok         bool
	}{{time.Second, time.Second, false}, {time.Second, time.Millisecond, false}, {time.Second, 1001 * time.Millisecond, true}, {0, time.Millisecond, true}, {time.Second, 0, true}} {
		m := Message{Delay: c.delay, TTL: c.ttl}
		_, checked := Check(build([]Message{m}), Limits{})
		for what, err := range map[string]error{"validate": m.Validate(Limits{}), "check": checked} {
			var fe *FieldError
			if (err == nil) != c.ok || err != nil && (!errors.As(err, &fe) || fe.Field != "ttl") {
				t.Errorf("delay %v, ttl %v: %s: %v", c.delay, c.ttl, what, err)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(build(sample()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= FrameHeaderSize {
			reseal(b) // so that the fuzzer gets behind the checksum
		}
		info, err := Check(b, Limits{Internal: true})
		if err != nil {
			return
		}
		c := NewCursor(b)
		for range info.Count {
			raw, ok := c.Next()
			if !ok {
				t.Fatal("accepted frame does not walk")
			}
			if _, err := raw.Decode(); err != nil {
				t.Fatalf("accepted message does not decode: %v", err)
			}
		}
	})
}

func BenchmarkCheck100(b *testing.B) {
	ms := make([]Message, 500)
	for i := range ms {
		ms[i].Body = make([]byte, 100)
	}
	f := build(ms)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(f, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
