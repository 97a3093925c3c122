package killtest

import (
	"maps"
	"time"
)

// gaps are the longest times, by queue, in which something did not happen.
type gaps struct {
	last    map[string]time.Time
	longest map[string]time.Duration
}

func newGaps() gaps {
	return gaps{map[string]time.Time{}, map[string]time.Duration{}}
}

// note notes that it has happened. Before that was called once for a queue, nothing is expected of it.
func (g *gaps) note(queue string) {
	now := time.Now()
	if last, ok := g.last[queue]; ok {
		g.longest[queue] = max(g.longest[queue], now.Sub(last))
	}
	g.last[queue] = now
}

// read returns the longest times so far, and begins anew.
func (g *gaps) read() map[string]time.Duration {
	for queue := range g.last {
		g.note(queue)
	}
	out := maps.Clone(g.longest)
	clear(g.longest)
	return out
}

// Gaps returns, by queue, the longest time since the last call without an acknowledged send, and without a hand-over.
func (h *History) Gaps() (stored, received map[string]time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.storedGaps.read(), h.receivedGaps.read()
}
