package window

import (
	"testing"

	"pgregory.net/rapid"
)

// Bits beside a map, over a span of many words so that the ring wraps, grows and is given back.
func TestBitsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Bits
		model := map[uint64]bool{}
		base := rapid.Uint64Range(0, 1000).Draw(t, "base")
		b.Advance(base)
		span := rapid.SampledFrom([]uint64{70, 300, 5000}).Draw(t, "span")
		draw := func() uint64 { return b.Base() + rapid.Uint64Range(0, span).Draw(t, "offset") }
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				seq := draw()
				if b.Set(seq) == model[seq] {
					t.Fatalf("Set(%d) disagrees", seq)
				}
				model[seq] = true
			},
			"set run": func(t *rapid.T) {
				first := draw()
				last := first + rapid.Uint64Range(0, 200).Draw(t, "run")
				b.SetRange(first, last)
				for seq := first; seq <= last; seq++ {
					model[seq] = true
				}
			},
			"clear": func(t *rapid.T) {
				seq := draw()
				if b.Clear(seq) != model[seq] {
					t.Fatalf("Clear(%d) disagrees", seq)
				}
				delete(model, seq)
			},
			"advance": func(t *rapid.T) {
				base := b.Base() + rapid.Uint64Range(0, span).Draw(t, "by")
				if rapid.IntRange(0, 9).Draw(t, "far") == 0 {
					base += 3 * span
				}
				b.Advance(base)
				for seq := range model {
					if seq < base {
						delete(model, seq)
					}
				}
			},
			"": func(t *rapid.T) {
				if b.Len() != len(model) {
					t.Fatalf("Len %d, want %d", b.Len(), len(model))
				}
				from := draw()
				clear := from
				for model[clear] {
					clear++
				}
				if got := b.NextClear(from); got != clear {
					t.Fatalf("NextClear(%d) = %d, want %d", from, got, clear)
				}
				last, some := uint64(0), false
				for seq := range model {
					last, some = max(last, seq), true
				}
				if got, found := b.Last(); found != some || got != last {
					t.Fatalf("Last() = %d %v, want %d %v", got, found, last, some)
				}
				set, ok := uint64(0), false
				for seq := range model {
					if seq >= from && (!ok || seq < set) {
						set, ok = seq, true
					}
				}
				if got, found := b.NextSet(from); found != ok || got != set {
					t.Fatalf("NextSet(%d) = %d %v, want %d %v", from, got, found, set, ok)
				}
				if b.Has(from) != model[from] || b.Base() > 0 && b.Set(b.Base()-1) {
					t.Fatal("Has, or Set below the base")
				}
			},
		})
	})
}

func TestBitsGivesBackALargeRing(t *testing.T) {
	var b Bits
	for seq := range uint64(MaxWindow) {
		b.Set(MaxWindow - 1 - seq)
	}
	if len(b.words) != MaxWindow/64 {
		t.Fatalf("%d words for a full window, want %d", len(b.words), MaxWindow/64)
	}
	if got := b.NextClear(0); got != MaxWindow {
		t.Fatalf("NextClear(0) = %d on a full window", got)
	}
	b.Advance(MaxWindow)
	if b.words != nil || b.Len() != 0 {
		t.Fatalf("an empty set keeps %d words", len(b.words))
	}
}
