package memory

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// entry is a stored record. Its slices are never written to; discarding sets them to nil.
type entry struct {
	journal.Header
	meta, body []byte
	bodyGone   bool
}

// head is where a stream ends.
type head struct {
	end  uint64
	crc  uint32
	time int64
}

// fence remembers where the stream ended when an epoch was taken from its owner.
type fence struct {
	epoch uint64
	head
}

// maxFences bounds how many epochs a stream remembers the ends of. An owner that is more
// takeovers late than that is told ErrUnknown where it could be told more.
const maxFences = 1024

// stream is a stream's data. Every method takes the lock for one atomic step.
type stream struct {
	name string

	mu      sync.RWMutex
	uid     journal.UID
	epoch   uint64
	dropped bool
	head
	synced head     // what survives a crash
	low    uint64   // the lowest seq whose meta is kept
	recs   []*entry // with meta, without a gap; the last one ends at end
	bodies []*entry // behind Low: meta discarded, body not; ascending
	noBody int      // the first noBody of recs have no body any more
	parts  map[string][]byte
	fences []fence // ascending by epoch
}

func (s *stream) info() journal.Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.infoLocked()
}

func (s *stream) infoLocked() journal.Info {
	return journal.Info{
		Name: s.name, UID: s.uid, Epoch: s.epoch, Dropped: s.dropped,
		End: s.end, EndCRC: s.crc, EndTime: s.time, Low: s.low,
	}
}

// acquire raises the epoch, gives a new or dropped stream a new uid, and makes
// all that is stored durable.
func (s *stream) acquire(epochRecord bool) journal.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == 0 || s.dropped {
		rand.Read(s.uid[:]) // never fails
		s.dropped = false
		s.parts = map[string][]byte{}
	}
	if s.epoch > 0 {
		s.fences = append(s.fences, fence{s.epoch, s.head})
		if n := len(s.fences) - maxFences; n > 0 {
			s.fences = slices.Delete(s.fences, 0, n)
		}
	}
	s.epoch++
	if epochRecord {
		r := journal.Record{Header: journal.Header{
			UID: s.uid, Epoch: s.epoch, First: s.end + 1, Count: 1, Kind: journal.KindEpoch, Time: s.time,
		}}
		if err := r.Seal(s.crc); err != nil {
			panic(err) // it has no parts that could be too large
		}
		s.push(&entry{Header: r.Header})
	}
	s.synced = s.head
	return s.infoLocked()
}

// imported is acquire for an importer: of a copy of from, or of what is here of it.
func (s *stream) imported(from journal.Info) (journal.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch == 0:
		s.uid, s.parts = from.UID, map[string][]byte{}
		s.head = head{from.End, from.EndCRC, from.EndTime}
		s.low = from.End + 1
	case s.uid != from.UID || s.dropped:
		return journal.Info{}, fmt.Errorf("%w: another stream has that name, of uid %s (dropped: %t)", journal.ErrConflict, s.uid, s.dropped)
	default:
		s.fences = append(s.fences, fence{s.epoch, s.head})
	}
	s.epoch = max(s.epoch+1, from.Epoch)
	s.synced = s.head
	return s.infoLocked(), nil
}

func (s *stream) push(e *entry) {
	s.recs = append(s.recs, e)
	s.head = head{e.Last(), e.CRC, e.Time}
}

// append stores e behind seq after for the owner that acquired own, or tells why not. e has passed journal.CheckAppend
// or CheckImported.
func (s *stream) append(own journal.Info, after uint64, e *entry, buffered bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.Epoch == s.epoch && e.UID == s.uid && !s.dropped && after == s.end {
		if e.PrevCRC != s.crc {
			return fmt.Errorf("%w: record follows CRC %08x, seq %d has CRC %08x", journal.ErrConflict, e.PrevCRC, s.end, s.crc)
		}
		if e.Time < s.time {
			return fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, e.Time, s.end, s.time)
		}
		s.push(e)
		if !buffered {
			s.synced = s.head
		}
		return nil
	}
	return s.settle(own, e, buffered)
}

// settle decides what to say of a record that cannot be stored now: whether an earlier try
// of the same record was.
func (s *stream) settle(own journal.Info, e *entry, buffered bool) error {
	if s.storedAlready(e) {
		if !buffered {
			s.synced = s.head
		}
		return nil
	}
	fenced := own.Epoch != s.epoch || e.UID != s.uid || s.dropped
	if at := s.endOf(own.Epoch); e.Last() < s.low && e.First <= at.end {
		// Something of that epoch did stand there, and is discarded. Only the last record of
		// an epoch can still be recognised.
		if e.Last() == at.end && e.CRC == at.crc {
			return nil
		}
		if e.Last() < at.end {
			return fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, e.First, e.Last())
		}
	}
	if fenced {
		return s.fencedError(own.Epoch)
	}
	return fmt.Errorf("%w: it ends at %d", journal.ErrConflict, s.end)
}

func (s *stream) storedAlready(e *entry) bool {
	i, ok := slices.BinarySearchFunc(s.recs, e.First, byFirst)
	return ok && s.recs[i].Header == e.Header
}

// endOf returns where the stream ended when epoch was over, or ends now.
func (s *stream) endOf(epoch uint64) head {
	i, ok := slices.BinarySearchFunc(s.fences, epoch, func(f fence, e uint64) int { return cmp.Compare(f.epoch, e) })
	if ok {
		return s.fences[i].head
	}
	return s.head
}

func (s *stream) fencedError(epoch uint64) error {
	if s.dropped && epoch == s.epoch {
		return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)
	}
	return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, epoch, s.epoch)
}

// change runs f under the lock if own is still the newest epoch.
func (s *stream) change(own journal.Info, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.Epoch != s.epoch || s.dropped {
		return s.fencedError(own.Epoch)
	}
	f()
	return nil
}

func (s *stream) discardBodies(ranges []journal.Range) {
	for _, r := range ranges {
		if r.From > r.To {
			continue
		}
		i, _ := slices.BinarySearchFunc(s.recs, r.From, byFirst)
		for i = max(i, s.noBody); i < len(s.recs) && s.recs[i].Last() <= r.To; i++ {
			s.recs[i].body, s.recs[i].bodyGone = nil, true
		}
	}
	for s.noBody < len(s.recs) && s.recs[s.noBody].bodyGone {
		s.noBody++
	}
	if len(s.bodies) > 0 {
		s.bodies = slices.DeleteFunc(s.bodies, func(e *entry) bool {
			return slices.ContainsFunc(ranges, func(r journal.Range) bool { return r.From <= e.First && e.Last() <= r.To })
		})
	}
}

func (s *stream) discardMeta(low uint64) {
	low = min(low, s.end+1)
	n := 0
	for n < len(s.recs) && s.recs[n].Last() < low {
		if e := s.recs[n]; !e.bodyGone && e.BodyLen > 0 {
			e.meta = nil
			s.bodies = append(s.bodies, e)
		}
		n++
	}
	if n > 0 {
		s.low = s.recs[n-1].Last() + 1
	}
	clear(s.recs[:n])
	s.recs = s.recs[n:]
	s.noBody = max(0, s.noBody-n)
}

func (s *stream) drop() {
	s.recs, s.bodies, s.noBody, s.parts = nil, nil, 0, nil
	s.dropped = true
	s.low = s.end + 1
	s.synced = s.head
}

// crash loses what was only buffered.
func (s *stream) crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _ := slices.BinarySearchFunc(s.recs, s.synced.end+1, byFirst)
	clear(s.recs[n:])
	s.recs = s.recs[:n]
	s.bodies = slices.DeleteFunc(s.bodies, func(e *entry) bool { return e.First > s.synced.end })
	s.noBody = min(s.noBody, n)
	s.head = s.synced
	s.low = min(s.low, s.end+1)
}

func (s *stream) part(name string) ([]byte, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.parts[name]
	return bytes.Clone(p), ok
}

func (s *stream) partNames(prefix string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for name := range maps.Keys(s.parts) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func byFirst(e *entry, seq uint64) int { return cmp.Compare(e.First, seq) }
