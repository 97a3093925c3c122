package killtest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfastmq/holdfast"
)

// maxFaults bounds the faults that are told.
const maxFaults = 30

// name identifies a message as its sender does.
type name struct {
	queue, sender string
	n             int
}

// fate is what is known of a message.
type fate struct {
	key       string
	stored    bool        // the sender was told so
	refused   bool        // the sender was told that it is not stored
	id        holdfast.ID // the zero value if it was not received
	received  int
	attempt   int // of the last delivery
	deletedBy bool
}

// History is what senders and receivers saw. What may not be is noted as it happens. It can be used concurrently.
type History struct {
	mu     sync.Mutex
	fates  map[name]*fate
	newest map[string]uint64 // by queue and key: the highest seq that was handed out
	faults []string
	more   int

	storedGaps, receivedGaps gaps

	sent, stored, received, deleted int
}

// NewHistory returns a history of nothing.
func NewHistory() *History {
	return &History{fates: map[name]*fate{}, newest: map[string]uint64{}, storedGaps: newGaps(), receivedGaps: newGaps()}
}

func (h *History) fault(format string, args ...any) {
	if len(h.faults) == maxFaults {
		h.more++
		return
	}
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// Body returns the content of a sender's message n: whoever gets it can tell whether it is what was sent. Most are
// small, a few have up to 64 KiB.
func Body(sender string, n int, key string) []byte {
	f := fnv.New64a()
	_, _ = fmt.Fprintf(f, "%s %d", sender, n) // a hash takes everything
	r := rand.New(rand.NewPCG(f.Sum64(), uint64(n)))
	size := r.IntN(200)
	if r.IntN(100) == 0 {
		size = r.IntN(64 << 10)
	}
	b := fmt.Appendf(nil, "%s %d %s|", sender, n, key)
	for range size {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// Sending notes that a sender is about to send its message n, and returns its body.
func (h *History) Sending(queue, sender string, n int, key string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	h.fates[name{queue, sender, n}] = &fate{key: key}
	return Body(sender, n, key)
}

// Outcome notes what the sender was told of a message.
func (h *History) Outcome(queue, sender string, n int, id holdfast.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.fates[name{queue, sender, n}]
	switch {
	case err == nil:
		f.stored = true
		h.stored++
		h.storedGaps.note(queue)
		if id != (holdfast.ID{}) {
			h.identify(name{queue, sender, n}, f, id)
		}
	case !errors.Is(err, holdfast.ErrUnknown):
		f.refused = true
		if f.received > 0 {
			h.fault("G10: %v was said not to be stored, and was received: %v", name{queue, sender, n}, err)
		}
	}
}

// identify checks that a message has one id.
func (h *History) identify(m name, f *fate, id holdfast.ID) {
	if f.id != (holdfast.ID{}) && f.id != id {
		h.fault("G3: %v is stored twice: as %v and as %v", m, f.id, id)
	}
	f.id = id
}

// parse returns which message a body is of.
func parse(body []byte) (sender string, n int, key string, ok bool) {
	head, _, ok := bytes.Cut(body, []byte("|"))
	words := strings.Fields(string(head))
	if !ok || len(words) < 2 || len(words) > 3 {
		return "", 0, "", false
	}
	if len(words) == 3 {
		key = words[2]
	}
	n, err := strconv.Atoi(words[1])
	return words[0], n, key, err == nil
}

// Delivered notes that a message was handed to a receiver. from is the queue that it was sent to, which is another than
// the one that it was received from for a dead letter.
func (h *History) Delivered(from string, d *holdfast.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received++
	h.receivedGaps.note(d.Queue())
	sender, n, key, ok := parse(d.Body)
	m := name{from, sender, n}
	f := h.fates[m]
	if !ok || f == nil || !bytes.Equal(d.Body, Body(sender, n, f.key)) || d.Key != f.key || key != f.key {
		h.fault("received and never sent: %.60q from queue %s", d.Body, d.Queue())
		return
	}
	if f.refused {
		h.fault("G10: %v was said not to be stored, and was received", m)
	}
	if f.deletedBy {
		h.fault("G2: %v was acknowledged for good, and came again (delivery %d)", m, d.Attempt)
	}
	h.identify(m, f, d.ID)
	f.received++
	if d.Queue() != from {
		return // it begins to count anew there, and has no order
	}
	if d.Attempt < f.attempt {
		h.fault("§7: the delivery count of %v fell from %d to %d", m, f.attempt, d.Attempt)
	}
	f.attempt = d.Attempt
	if key != "" {
		line := from + " " + key
		if d.ID.Seq < h.newest[line] {
			h.fault("G6: of key %s, seq %d came after seq %d", key, d.ID.Seq, h.newest[line])
		}
		h.newest[line] = max(h.newest[line], d.ID.Seq)
	}
}

// Deleted notes that a receiver was told that its acknowledgement is stored.
func (h *History) Deleted(from string, d *holdfast.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sender, n, _, _ := parse(d.Body)
	if f := h.fates[name{from, sender, n}]; f != nil {
		f.deletedBy = true
		h.deleted++
	}
}

// Check judges the end: everything has been received by now. It returns what is wrong.
func (h *History) Check() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	type stored struct {
		n   int
		seq uint64
	}
	lines := map[string][]stored{}
	ids := map[holdfast.ID]name{}
	for m, f := range h.fates {
		if f.stored && f.received == 0 {
			h.fault("G1: %v was acknowledged, and is lost", m)
		}
		if f.id == (holdfast.ID{}) {
			continue
		}
		if other, ok := ids[f.id]; ok {
			h.fault("%v and %v have the same id, %v", m, other, f.id)
		}
		ids[f.id] = m
		lines[m.queue+" "+m.sender] = append(lines[m.queue+" "+m.sender], stored{m.n, f.id.Seq})
	}
	for line, all := range lines {
		sort.Slice(all, func(i, j int) bool { return all[i].n < all[j].n })
		for i := 1; i < len(all); i++ {
			if all[i].seq <= all[i-1].seq {
				h.fault("G6: %s: message %d is stored at seq %d, behind message %d at seq %d", line, all[i-1].n, all[i-1].seq, all[i].n, all[i].seq)
			}
		}
	}
	if h.more > 0 {
		h.faults = append(h.faults, fmt.Sprintf("and %d more", h.more))
		h.more = 0
	}
	return h.faults
}

// Progress returns how many messages are acknowledged, and how often one was received.
func (h *History) Progress() (stored, received int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stored, h.received
}

// Faulty tells that something is wrong already.
func (h *History) Faulty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.faults) > 0
}

// Missing returns how many acknowledged messages have not been received yet.
func (h *History) Missing() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.fates {
		if f.stored && f.received == 0 {
			n++
		}
	}
	return n
}

// Summary tells what happened.
func (h *History) Summary() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := 0
	for _, f := range h.fates {
		if f.received > 1 {
			again++
		}
	}
	return fmt.Sprintf("%d sent, %d acknowledged, %d handed out, %d messages more than once, %d deletes acknowledged", h.sent, h.stored, h.received, again, h.deleted)
}
