package consumer

import (
	"fmt"

	"github.com/holdfastmq/holdfast/delivery/window"
)

// MaxParts is the most parts that a message is sent in.
const MaxParts = 65_536

// Part is a piece of a message that is larger than a link's frame.
type Part struct {
	Key window.Key
	Seq uint64
	// Index is which piece it is, from 0, of Count, 2 to MaxParts.
	Index, Count int
	// Total is the length of the whole body in bytes.
	Total int
	// Body is the piece. The assembler keeps it.
	Body []byte
}

// Assembler puts messages together that came in parts. Parts may come in any order, more than once, and over
// several transmissions: what has come is kept, so that a message of many parts gets over a lossy link.
//
// A message's whole length is reserved with its first part. So what was begun can always be completed,
// and what finds no room is ignored and comes again. Whoever shows no progress for the stale time makes way.
// It is pure, like Core, and not safe for concurrent use.
type Assembler struct {
	maxBytes int
	stale    int64
	partial  map[partialKey]*partial
	reserved int
	swept    int64
}

type partialKey struct {
	key window.Key
	seq uint64
}

type partial struct {
	parts    [][]byte
	missing  int
	total    int
	received int
	reserved int
	progress int64
}

// partialOverhead is what an unfinished message costs beside its body, and partOverhead what each part does.
const (
	partialOverhead = 512
	partOverhead    = 24
)

// NewAssembler returns an assembler that reserves at most maxBytes, and lets a message that had no new part
// for the time stale make way.
func NewAssembler(maxBytes int, stale int64) *Assembler {
	return &Assembler{maxBytes: min(maxBytes, 1<<48), // sums stay far from overflow
		stale: stale, partial: make(map[partialKey]*partial), swept: -stale}
}

// Reserved returns the bytes that unfinished messages hold or may come to hold.
func (a *Assembler) Reserved() int { return a.reserved }

// Len returns the number of unfinished messages.
func (a *Assembler) Len() int { return len(a.partial) }

// Add takes a part at time now. With the last missing one it returns the whole body; body is nil while parts
// are missing, or if the part was ignored for want of room. A fault means that the part is malformed, or that
// its message can never be put together here.
func (a *Assembler) Add(p Part, now int64) (body []byte, fault *window.Fault) {
	switch {
	case p.Count < 2 || p.Count > MaxParts:
		return nil, &window.Fault{Field: "parts", Problem: fmt.Sprintf("%d is not in 2…%d", p.Count, MaxParts)}
	case p.Index < 0 || p.Index >= p.Count:
		return nil, &window.Fault{Field: "part", Problem: fmt.Sprintf("%d is not below %d", p.Index, p.Count)}
	case len(p.Body) == 0:
		return nil, &window.Fault{Field: "part", Problem: fmt.Sprintf("%d of %d is empty", p.Index, p.Count)}
	case p.Total < p.Count:
		return nil, &window.Fault{Field: "total", Problem: fmt.Sprintf("of %d bytes is less than %d parts", p.Total, p.Count)}
	}
	need := p.Total + partialOverhead + p.Count*partOverhead
	if p.Total > a.maxBytes || need > a.maxBytes {
		return nil, &window.Fault{Field: "total",
			Problem: fmt.Sprintf("of %d bytes in %d parts is more than is put together, %d", p.Total, p.Count, a.maxBytes)}
	}
	k := partialKey{p.Key, p.Seq}
	m := a.partial[k]
	if m != nil && (len(m.parts) != p.Count || m.total != p.Total) {
		a.drop(k, m) // cut anew: another link, another frame limit
		m = nil
	}
	if m == nil {
		if a.reserved+need > a.maxBytes && now >= a.swept+a.stale/4 { // not a walk for each part
			a.Sweep(now)
		}
		if a.reserved+need > a.maxBytes {
			return nil, nil
		}
		m = &partial{parts: make([][]byte, p.Count), missing: p.Count, total: p.Total, reserved: need, progress: now}
		a.partial[k] = m
		a.reserved += need
	}
	if m.parts[p.Index] != nil {
		return nil, nil
	}
	if m.received += len(p.Body); m.received > m.total {
		a.drop(k, m)
		return nil, &window.Fault{Field: "total", Problem: fmt.Sprintf("of %d bytes is less than its parts", m.total)}
	}
	m.parts[p.Index] = p.Body
	m.progress = now
	if m.missing--; m.missing > 0 {
		return nil, nil
	}
	a.drop(k, m)
	if m.received != m.total {
		return nil, &window.Fault{Field: "total", Problem: fmt.Sprintf("of %d bytes, its parts have %d", m.total, m.received)}
	}
	body = make([]byte, 0, m.total)
	for _, part := range m.parts {
		body = append(body, part...)
	}
	return body, nil
}

// Sweep gives up on the messages that had no new part for the stale time, and returns how many.
func (a *Assembler) Sweep(now int64) (dropped int) {
	a.swept = now
	for k, m := range a.partial {
		if now-m.progress >= a.stale {
			a.drop(k, m)
			dropped++
		}
	}
	return dropped
}

func (a *Assembler) drop(k partialKey, m *partial) {
	delete(a.partial, k)
	a.reserved -= m.reserved
}
