package consumer

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/holdfastmq/holdfast/delivery/window"
)

func partsOf(seq uint64, body []byte, size int) []Part {
	var parts []Part
	for i := 0; i < len(body); i += size {
		parts = append(parts, Part{Key: window.Key{Producer: "p", Incarnation: "i"}, Seq: seq, Index: i / size,
			Count: (len(body) + size - 1) / size, Total: len(body), Body: body[i:min(len(body), i+size)]})
	}
	return parts
}

func add(t *testing.T, a *Assembler, p Part, now int64) []byte {
	t.Helper()
	body, fault := a.Add(p, now)
	if fault != nil {
		t.Fatal(fault)
	}
	return body
}

// Design §6: "Large bodies are chunked over links with a frame limit and reassembled before the handler." Parts come
// in any order, more than once, over two transmissions of which each lost half.
func TestAssemblerAnyOrderWithLoss(t *testing.T) {
	a := NewAssembler(1<<20, 100)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	parts := partsOf(7, body, 100)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, p := range parts[:len(parts)/2] {
		for range 2 {
			if add(t, a, p, 0) != nil {
				t.Fatal("complete with half of the parts")
			}
		}
	}
	for i, p := range parts[len(parts)/2:] {
		got := add(t, a, p, 50)
		if last := i == len(parts)-len(parts)/2-1; (got != nil) != last {
			t.Fatalf("part %d gives a body: %v", i, got != nil)
		} else if last && !bytes.Equal(got, body) {
			t.Fatal("the body is another one")
		}
	}
	if a.Len() != 0 || a.Reserved() != 0 {
		t.Errorf("%d messages and %d bytes left", a.Len(), a.Reserved())
	}
}

// G4: what unfinished messages can come to hold is bounded from their first part on, so that what was begun can be
// completed; what finds no room is ignored; what makes no progress makes way.
func TestAssemblerBounds(t *testing.T) {
	a := NewAssembler(5000, 100)
	first, second := partsOf(1, make([]byte, 3000), 1000), partsOf(2, make([]byte, 3000), 1000)
	add(t, a, first[0], 0)
	add(t, a, second[0], 10)
	if a.Len() != 1 || a.Reserved() > 5000 {
		t.Fatalf("%d messages, %d bytes", a.Len(), a.Reserved())
	}
	add(t, a, first[1], 60)
	add(t, a, second[0], 110) // first made progress 50 ago
	if a.Len() != 1 {
		t.Fatal("a message that makes progress was thrown out")
	}
	add(t, a, second[0], 160)
	if a.Len() != 1 || add(t, a, second[1], 160) != nil || add(t, a, second[2], 160) == nil {
		t.Fatal("a message without progress did not make way")
	}
	add(t, a, first[0], 200)
	if a.Sweep(299) != 0 || a.Sweep(300) != 1 || a.Reserved() != 0 {
		t.Errorf("sweep left %d bytes", a.Reserved())
	}
}

// A message that comes over another link, with another frame limit, starts again.
func TestAssemblerCutAnew(t *testing.T) {
	a := NewAssembler(1<<20, 100)
	body := []byte("abcdefghij")
	add(t, a, partsOf(1, body, 3)[0], 0)
	parts := partsOf(1, body, 5)
	if add(t, a, parts[1], 0) != nil || !bytes.Equal(add(t, a, parts[0], 0), body) {
		t.Error("not put together")
	}
}

// G11: each fault names its field, and changes nothing.
func TestAssemblerFaults(t *testing.T) {
	ok := Part{Key: window.Key{Producer: "p", Incarnation: "i"}, Seq: 1, Count: 2, Total: 4, Body: []byte("ab")}
	for _, c := range []struct {
		field  string
		change func(*Part)
	}{
		{"parts", func(p *Part) { p.Count = 1 }},
		{"parts", func(p *Part) { p.Count = MaxParts + 1 }},
		{"parts", func(p *Part) { p.Count = -2 }},
		{"part", func(p *Part) { p.Index = 2 }},
		{"part", func(p *Part) { p.Index = -1 }},
		{"part", func(p *Part) { p.Body = nil }},
		{"total", func(p *Part) { p.Total = 1 }},
		{"total", func(p *Part) { p.Total = 1 << 62 }},
		{"total", func(p *Part) { p.Total = -1 }},
		{"total", func(p *Part) { p.Body = []byte("abcde") }},
	} {
		a := NewAssembler(10_000, 100)
		p := ok
		c.change(&p)
		if _, fault := a.Add(p, 0); fault == nil || fault.Field != c.field {
			t.Errorf("%+v: fault %v, want one of %s", p, fault, c.field)
		}
		if a.Reserved() != 0 {
			t.Errorf("%+v: reserved %d", p, a.Reserved())
		}
	}
	a := NewAssembler(10_000, 100)
	add(t, a, ok, 0)
	last := ok
	last.Index, last.Body = 1, []byte("c")
	if _, fault := a.Add(last, 0); fault == nil || a.Reserved() != 0 {
		t.Errorf("parts of 3 bytes made a body of 4: %v", fault)
	}
}

// Whatever parts come, nothing panics and the bound holds.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{1, 0, 2, 4, 2, 1, 1, 2, 4, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		a := NewAssembler(3000, 20)
		for now := int64(0); len(data) >= 5; now++ {
			p := Part{Key: window.Key{Producer: "p", Incarnation: "i"}, Seq: uint64(data[0]%4) + 1, Index: int(int8(data[1])),
				Count: int(int8(data[2])), Total: int(int8(data[3])) * 9, Body: make([]byte, data[4]%64)}
			if body, _ := a.Add(p, now); body != nil && len(body) != p.Total {
				t.Fatalf("%d bytes for a total of %d", len(body), p.Total)
			}
			sum := 0
			for _, m := range a.partial {
				sum += m.reserved
				if m.received > m.total || m.missing == 0 {
					t.Fatalf("%+v", m)
				}
			}
			if sum != a.reserved || sum > 3000 {
				t.Fatalf("%d reserved, %d in all", a.reserved, sum)
			}
			data = data[5:]
		}
	})
}
