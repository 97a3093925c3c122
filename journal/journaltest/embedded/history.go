package embedded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// place is which message it is: the n-th of a sender to a queue.
type place struct {
	queue, sender string
	n             uint64
}

// fate is what is known of a message. What was told before a cut holds for ever; what was tried may have happened.
type fate struct {
	id         holdfast.ID // zero until it is known
	stored     bool        // its send was acknowledged
	deleted    bool        // its delete, or a purge, was acknowledged
	purgedIn   int         // the life of that purge, counted from 1: receivers may have had it by then
	mayBeGone  bool        // a delete was tried, or it has a short TTL
	seenGone   bool        // after a cut it was not there
	deliveries int         // at least so many failed ones were acknowledged
}

// history is what a run of a test knows. The store is cut by the holder of its lock, so that what is in it was told before.
type history struct {
	t    testing.TB
	seed uint64
	body int // bytes, at most

	mu       sync.Mutex
	life     int // counts cuts; what is told to an earlier life is not believed
	fates    map[place]*fate
	byID     map[holdfast.ID]place
	upTo     map[[2]string]uint64 // by queue and sender: that many are known to be stored
	sent     map[[2]string]uint64 // that many were tried
	receipts map[holdfast.Receipt]bool
	purging  map[string]int       // purges under way, by queue
	config   map[string][2]uint64 // acknowledged and tried
}

func newHistory(t testing.TB, seed uint64, body int) *history {
	return &history{
		t: t, seed: seed, body: body,
		fates: map[place]*fate{}, byID: map[holdfast.ID]place{}, upTo: map[[2]string]uint64{}, sent: map[[2]string]uint64{},
		receipts: map[holdfast.Receipt]bool{}, purging: map[string]int{}, config: map[string][2]uint64{},
	}
}

func (h *history) errorf(format string, args ...any) {
	h.t.Helper()
	h.t.Errorf("seed %d, life %d: %s", h.seed, h.life, fmt.Sprintf(format, args...))
}

// cut ends a life. f is what ends it.
func (h *history) cut(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life++
	f()
}

// lives tells whether a life goes on. The lock is held.
func (h *history) lives(life int) bool { return h.life == life }

// message makes the n-th message of a sender, always the same.
func (h *history) message(p place) holdfast.Message {
	rng := rand.New(rand.NewPCG(h.seed, uint64(len(p.queue))<<48|uint64(p.sender[0])<<40|p.n))
	m := holdfast.Message{}
	head := fmt.Sprintf("%s %s %d ", p.queue, p.sender, p.n)
	m.Body = make([]byte, len(head)+rng.IntN(h.body))
	copy(m.Body, head)
	for i := len(head); i < len(m.Body); i++ {
		m.Body[i] = byte('a' + (uint64(i)*7+p.n)%26)
	}
	switch p.queue {
	case keyed:
		m.Key = keyOf(p)
		m.Headers = []holdfast.Header{{Name: "n", Value: strconv.FormatUint(p.n, 10)}}
	case mixed:
		m.Priority = rng.IntN(3)
		switch rng.IntN(8) {
		case 0:
			m.TTL = ttl
		case 1:
			m.Delay = ttl
		}
	}
	return m
}

// keys is how many ordering keys a sender has.
const keys = 4

func keyOf(p place) string { return fmt.Sprintf("%s-%d", p.sender, p.n%keys) }

// parse returns which message a body is of, and verifies it.
func (h *history) parse(body []byte) (p place, ok bool) {
	f := strings.SplitN(string(body[:min(len(body), 60)]), " ", 4)
	if len(f) < 4 {
		return p, false
	}
	n, err := strconv.ParseUint(f[2], 10, 64)
	p = place{f[0], f[1], n}
	return p, err == nil && p.sender != "" && bytes.Equal(h.message(p).Body, body)
}

// fate returns what is known of a message. The lock is held.
func (h *history) fate(p place) *fate {
	f := h.fates[p]
	if f == nil {
		f = &fate{}
		h.fates[p] = f
	}
	return f
}

// trySend notes that a message is about to be sent.
func (h *history) trySend(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.fate(p)
	if h.message(p).TTL > 0 || h.purging[p.queue] > 0 {
		f.mayBeGone = true
	}
	k := [2]string{p.queue, p.sender}
	h.sent[k] = max(h.sent[k], p.n)
}

// sentOne notes the outcome of a send.
func (h *history) sentOne(life int, p place, id holdfast.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lives(life) {
		return
	}
	if err != nil {
		h.errorf("G10: send of %v: %v", p, err)
		return
	}
	f := h.fate(p)
	f.stored = true
	k := [2]string{p.queue, p.sender}
	h.upTo[k] = max(h.upTo[k], p.n)
	h.identify(p, id)
}

// identify notes a message's id. The lock is held.
func (h *history) identify(p place, id holdfast.ID) {
	f := h.fate(p)
	switch {
	case id.Seq == 0:
	case f.id.Seq == 0:
		f.id = id
		if q, ok := h.byID[id]; ok {
			h.errorf("G3: %v and %v have the id %v", p, q, id)
		}
		h.byID[id] = p
	case f.id != id:
		h.errorf("G3: %v has the ids %v and %v", p, f.id, id)
	}
}

// resumed notes where a sender goes on: everything before is stored, and nothing from there on.
func (h *history) resumed(life int, queue, sender string, next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lives(life) {
		return
	}
	k := [2]string{queue, sender}
	if next <= h.upTo[k] {
		h.errorf("G1: sender %v was acknowledged %d messages and is told to go on at %d", k, h.upTo[k], next)
	}
	if next > h.sent[k]+1 {
		h.errorf("G3: sender %v has sent %d messages and is told to go on at %d", k, h.sent[k], next)
	}
	for n := h.upTo[k] + 1; n < next; n++ {
		h.fate(place{queue, sender, n}).stored = true
	}
	h.upTo[k] = next - 1
}

// delivered notes a hand-over, and judges it.
func (h *history) delivered(life int, d *holdfast.Delivery) (place, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.parse(d.Body)
	if !h.lives(life) {
		return p, ok
	}
	if !ok {
		h.errorf("delivered what was never sent: %.60q", d.Body)
		return p, false
	}
	f := h.fate(p)
	h.identify(p, d.ID)
	if f.deleted && f.purgedIn != life+1 || f.seenGone {
		h.errorf("G2: %v was delivered again, deleted: %v, seen gone: %v", p, f.deleted, f.seenGone)
	}
	if r := d.Receipt(); h.receipts[r] {
		h.errorf("§7: receipt %v was given twice", r)
	} else {
		h.receipts[r] = true
	}
	if p.queue == d.Queue() && d.Attempt <= f.deliveries {
		h.errorf("§7: delivery %d of %v, and %d had failed before", d.Attempt, p, f.deliveries)
	}
	if p.queue == keyed && d.Queue() == keyed {
		h.blockedBy(p)
	}
	return p, true
}

// blockedBy verifies that the messages of the same key before p are settled. The lock is held.
func (h *history) blockedBy(p place) {
	for n, k := p.n, 0; n > keys && k < 8; k++ {
		n -= keys
		if q := (place{p.queue, p.sender, n}); !h.fate(q).mayBeGone {
			h.errorf("G6: %v was delivered before %v of the same key was settled", p, q)
			return
		}
	}
}

// tryDelete notes that a delete is about to be tried; deletedOne that it was acknowledged.
func (h *history) tryDelete(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fate(p).mayBeGone = true
}

func (h *history) deletedOne(life int, p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lives(life) {
		h.fate(p).deleted = true
	}
}

func (h *history) failedOne(life int, p place, d *holdfast.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.fate(p); h.lives(life) && p.queue == d.Queue() {
		f.deliveries = max(f.deliveries, d.Attempt)
	}
}

// purge notes a purge around f, which does it.
func (h *history) purge(life int, name string, f func() error) {
	h.mu.Lock()
	h.purging[name]++
	var sure []*fate
	for p, f := range h.fates {
		if p.queue == name {
			f.mayBeGone = true
			if f.stored {
				sure = append(sure, f)
			}
		}
	}
	h.mu.Unlock()
	err := f()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.purging[name]--
	if !h.lives(life) {
		return
	}
	if err != nil {
		h.errorf("purge: %v", err)
		return
	}
	for _, f := range sure {
		if !f.deleted {
			f.deleted, f.purgedIn = true, life+1
		}
	}
}

// found is a message as it was found in a queue after a cut.
type found struct {
	holdfast.PeekedMessage
	queue string
}

// judge compares what the queues hold with what is known. all was looked at in the order of queues in which messages move; again is
// what failing held afterwards.
func (h *history) judge(all, again []found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := map[place][]found{}
	still := map[uint64]queue.State{}
	for _, m := range again {
		still[m.Seq] = m.State
	}
	last := map[[3]string]place{}
	for _, m := range all {
		p, ok := h.parse(m.Message.Body)
		if !ok {
			h.errorf("queue %s holds at seq %d what was never sent: %.60q", m.queue, m.Seq, m.Message.Body)
			continue
		}
		if p.n > h.sent[[2]string{p.queue, p.sender}] {
			h.errorf("%v was never sent and is there", p)
		}
		f := h.fate(p)
		h.identify(p, m.ID)
		if f.deleted || f.seenGone {
			h.errorf("G2: %v has come back in queue %s at seq %d as %v, deleted: %v, seen gone: %v", p, m.queue, m.Seq, m.State, f.deleted, f.seenGone)
		}
		if m.queue == p.queue {
			if m.Deliveries < f.deliveries {
				h.errorf("§7: %v has %d deliveries, and %d had failed", p, m.Deliveries, f.deliveries)
			}
			k := [3]string{m.queue, p.queue, p.sender}
			if l, ok := last[k]; ok && l.n >= p.n {
				h.errorf("G6: %v lies behind %v", p, l)
			}
			last[k] = p
		}
		at[p] = append(at[p], m)
	}
	for p, ms := range at {
		if len(ms) == 1 {
			continue
		}
		// What has been stored by dead is on its way to there, or no longer in failing.
		if state, ok := still[ms[0].Seq]; len(ms) > 2 || ms[0].queue != failing || ms[1].queue != dead || ok && state != queue.StateMoving {
			h.errorf("G3: %v is there %d times, first in queue %s as %v", p, len(ms), ms[0].queue, ms[0].State)
		}
	}
	for p, f := range h.fates {
		if f.stored && len(at[p]) == 0 {
			if !f.mayBeGone {
				h.errorf("G1, G2: %v, stored as %v, is lost", p, f.id)
			}
			f.seenGone = true
		}
	}
}

// counts says how much was done, for the log.
func (h *history) counts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	stored, deleted := 0, 0
	for _, f := range h.fates {
		if f.stored {
			stored++
		}
		if f.deleted {
			deleted++
		}
	}
	return fmt.Sprintf("%d messages tried, %d acknowledged, %d deletes acknowledged, %d hand-overs", len(h.fates), stored, deleted, len(h.receipts))
}

// tryConfig notes a configuration that is about to be tried, and returns its number.
func (h *history) tryConfig(name string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.config[name]
	c[1]++
	h.config[name] = c
	return c[1]
}

func (h *history) configured(life int, name string, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.config[name]; h.lives(life) {
		h.config[name] = [2]uint64{max(c[0], n), c[1]}
	}
}

// judgeConfig judges the number of a queue's configuration.
func (h *history) judgeConfig(name string, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.config[name]; n < c[0] || n > c[1] {
		h.errorf("queue %s has configuration %d, acknowledged were %d, tried %d", name, n, c[0], c[1])
	}
}

// sorted returns messages by seq.
func sorted(ms []found) []found {
	slices.SortFunc(ms, func(a, b found) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return ms
}
