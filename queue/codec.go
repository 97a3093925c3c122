package queue

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/holdfastmq/holdfast/queue/internal/wire"
)

// The encoding of an event, varints throughout (see package wire):
//
//	u8   kind
//	u8   version, 1; 2 of a Leased event with a session
//	int  At
//	then what the kind says, in the order of Event's fields
//
// Spans are their number, and for each one how far it begins behind the end of the one before, and its count. Times are the
// difference to At. The specials of an Added event are columns, so that what is the same for all costs once.
const (
	eventVersion  = 1
	leasedVersion = 2 // the newest one
)

const (
	// maxAdded bounds the messages of an Added event. Frames have fewer; see message.Limits.
	maxAdded = 1 << 20
	// maxSpans bounds the spans of an event that the core decides; decoding accepts more.
	maxSpans = 4096
)

// AppendEvent appends the meta encoding of e to dst: everything but Frames, and the Spans of an Added event.
func AppendEvent(dst []byte, e *Event) []byte {
	version := byte(eventVersion)
	if e.Session != 0 {
		version = leasedVersion
	}
	dst = append(dst, byte(e.Kind), version)
	dst = wire.AppendInt(dst, e.At)
	switch e.Kind {
	case KindAdded:
		return appendAdded(dst, e)
	case KindConfigured:
		return append(dst, encodeConfig(*e.Config)...)
	case KindPaused:
		return append(dst, bit(e.Paused, 1))
	case KindProducerClosed, KindSuppressed:
		return binary.AppendUvarint(appendProducer(dst, e.Producer), e.ProducerSeq)
	}
	dst = appendSpans(dst, e.Spans)
	switch e.Kind {
	case KindLeased:
		dst = binary.AppendUvarint(dst, e.Lease)
		dst = append(dst, bit(e.Announces, 1))
		dst = binary.AppendUvarint(dst, uint64(e.Visibility))
		if e.Session != 0 {
			dst = binary.LittleEndian.AppendUint64(dst, e.Session)
		}
	case KindReturned:
		dst = append(dst, byte(e.Cause), bit(e.Counted, 1)|bit(e.Lost, 2)|bit(e.Alone, 4))
		dst = appendTime(dst, e.Due, e.At)
	case KindParked:
		dst = append(dst, byte(e.Cause), bit(e.Counted, 1))
	case KindMoving:
		dst = append(dst, byte(e.Cause), bit(e.Counted, 1))
		dst = wire.AppendString(dst, e.Target)
		dst = wire.AppendString(dst, e.Reason)
	case KindUndone:
		dst = binary.AppendUvarint(appendProducer(dst, e.Producer), e.ProducerSeq)
	}
	return dst
}

// bit returns mask if b, and 0 if not.
func bit(b bool, mask byte) byte {
	if b {
		return mask
	}
	return 0
}

// encodeConfig encodes a configuration. It cannot fail: there are only strings and numbers in it.
func encodeConfig(c Config) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Errorf("encode configuration: %w", err))
	}
	return b
}

func decodeConfig(b []byte) (*Config, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("configuration: %w: %w", ErrMalformed, err)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w: %w", ErrMalformed, err)
	}
	return &c, nil
}

func appendProducer(dst []byte, p Producer) []byte {
	return wire.AppendString(wire.AppendString(dst, p.ID), p.Incarnation)
}

func appendSpans(dst []byte, spans []Span) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	end := uint64(0)
	for _, s := range spans {
		dst = wire.AppendInt(dst, int64(s.Seq-end))
		dst = binary.AppendUvarint(dst, s.Count)
		end = s.Seq + s.Count
	}
	return dst
}

// appendTime appends a time that may be none, which is 0.
func appendTime(dst []byte, t, at int64) []byte {
	if t == 0 {
		return append(dst, 0)
	}
	d := t - at
	return binary.AppendUvarint(dst, uint64(d)<<1^uint64(d>>63)+1)
}

// The flags of an Added event.
const (
	addedProducer = 1 << iota
	addedNotBefore
	addedSizes
	addedSpecials
)

func appendAdded(dst []byte, e *Event) []byte {
	a := e.Added
	dst = append(dst, bit(!a.Producer.IsZero(), addedProducer)|bit(a.NotBefore != 0, addedNotBefore)|
		bit(a.Sizes != nil, addedSizes)|bit(len(a.Specials) > 0, addedSpecials))
	dst = binary.AppendUvarint(dst, a.Count)
	if !a.Producer.IsZero() {
		dst = appendProducer(dst, a.Producer)
		dst = binary.AppendUvarint(dst, a.ProducerSeq)
		dst = binary.AppendUvarint(dst, a.ProducerLast-a.ProducerSeq)
	}
	if a.NotBefore != 0 {
		dst = appendTime(dst, a.NotBefore, e.At)
	}
	if a.Sizes == nil {
		dst = binary.AppendUvarint(dst, uint64(a.Uniform))
	}
	for _, s := range a.Sizes {
		dst = binary.AppendUvarint(dst, uint64(s))
	}
	if len(a.Specials) > 0 {
		dst = appendSpecials(dst, a.Specials, e.At)
	}
	return dst
}

// The forms of a column of specials.
const (
	columnNone  = 0 // all are zero; of indices: they are consecutive
	columnEqual = 1 // all are the one that follows
	columnEach  = 2
)

// appendSpecials appends the number of specials, the first index, and the columns: the gaps before the further indices,
// not-before, expires-at, priority, key hash, dedup hash, foreign.
func appendSpecials(dst []byte, sp []Special, at int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(sp)))
	dst = binary.AppendUvarint(dst, uint64(sp[0].Index))
	if int(sp[len(sp)-1].Index-sp[0].Index) == len(sp)-1 {
		dst = append(dst, columnNone)
	} else {
		dst = append(dst, columnEach)
		for i := range sp[1:] {
			dst = binary.AppendUvarint(dst, uint64(sp[i+1].Index-sp[i].Index-1))
		}
	}
	dst = appendColumn(dst, sp, func(s *Special) int64 { return s.NotBefore }, func(dst []byte, v int64) []byte { return appendTime(dst, v, at) })
	dst = appendColumn(dst, sp, func(s *Special) int64 { return s.ExpiresAt }, func(dst []byte, v int64) []byte { return appendTime(dst, v, at) })
	dst = appendColumn(dst, sp, func(s *Special) uint8 { return s.Priority }, func(dst []byte, v uint8) []byte { return append(dst, v) })
	dst = appendColumn(dst, sp, func(s *Special) uint64 { return s.KeyHash }, binary.LittleEndian.AppendUint64)
	dst = appendColumn(dst, sp, func(s *Special) [16]byte { return s.DedupHash }, func(dst []byte, v [16]byte) []byte { return append(dst, v[:]...) })
	return appendColumn(dst, sp, func(s *Special) bool { return s.Foreign }, func(dst []byte, v bool) []byte { return append(dst, bit(v, 1)) })
}

func appendColumn[T comparable](dst []byte, sp []Special, get func(*Special) T, enc func([]byte, T) []byte) []byte {
	var zero T
	first := get(&sp[0])
	for i := range sp {
		if get(&sp[i]) != first {
			dst = append(dst, columnEach)
			for i := range sp {
				dst = enc(dst, get(&sp[i]))
			}
			return dst
		}
	}
	if first == zero {
		return append(dst, columnNone)
	}
	return enc(append(dst, columnEqual), first)
}

// DecodeEvent decodes what AppendEvent wrote, all of b; the event keeps nothing of b. An Added event comes without its span, which
// Core.Apply sets. The error matches ErrNewerFormat if a later version wrote b, and ErrMalformed otherwise.
func DecodeEvent(b []byte) (Event, error) {
	if len(b) < 2 {
		return Event{}, fmt.Errorf("event of %d bytes: %w", len(b), ErrMalformed)
	}
	e := Event{Kind: Kind(b[0])}
	if b[1] > eventVersion && (b[1] != leasedVersion || e.Kind != KindLeased) || e.Kind > KindUndone {
		return e, fmt.Errorf("event of kind %d, version %d: %w", e.Kind, b[1], ErrNewerFormat)
	}
	r := wire.Reader{B: b[2:]}
	e.At = r.Int()
	var err error
	switch e.Kind {
	case KindAdded:
		e.Added = readAdded(&r, e.At)
	case KindConfigured:
		e.Config, err = decodeConfig(r.Bytes(len(r.B)))
	case KindPaused:
		e.Paused = r.Byte() == 1
	case KindProducerClosed, KindSuppressed:
		e.Producer, e.ProducerSeq = readProducer(&r), r.Uint()
	default:
		readRest(&r, &e)
		if b[1] == leasedVersion {
			if e.Session = r.Uint64(); e.Session == 0 {
				r.Fail()
			}
		}
	}
	if err == nil && (!r.Done() || b[1] == 0 || e.At < 0 || !e.valid()) {
		err = ErrMalformed
	}
	if err != nil {
		return e, fmt.Errorf("event of kind %d, %d bytes: %w", e.Kind, len(b), err)
	}
	return e, nil
}

// readRest reads what begins with spans.
func readRest(r *wire.Reader, e *Event) {
	e.Spans = readSpans(r)
	switch e.Kind {
	case KindLeased:
		e.Lease, e.Announces, e.Visibility = r.Uint(), r.Byte() == 1, int64(r.Uint())
	case KindReturned:
		e.Cause = Cause(r.Byte())
		f := r.Byte()
		e.Counted, e.Lost, e.Alone, e.Due = f&1 != 0, f&2 != 0, f&4 != 0, readTime(r, e.At)
	case KindParked:
		e.Cause, e.Counted = Cause(r.Byte()), r.Byte() == 1
	case KindMoving:
		e.Cause, e.Counted = Cause(r.Byte()), r.Byte() == 1
		e.Target, e.Reason = r.String(MaxNameLen), r.String(MaxNameLen)
	case KindUndone:
		e.Producer, e.ProducerSeq = readProducer(r), r.Uint()
	}
}

// valid tells whether the fields are in the range that the core relies on.
func (e *Event) valid() bool {
	switch e.Kind {
	case KindLeased:
		n := uint64(0)
		for _, s := range e.Spans {
			n += s.Count
		}
		return e.Lease > 0 && n < math.MaxUint64-e.Lease && e.Visibility >= 0 && e.Visibility <= MaxVisibility.Milliseconds()
	case KindPurged, KindUndone:
		return len(e.Spans) == 1
	case KindProducerClosed, KindSuppressed:
		return e.Producer.valid()
	case KindReturned:
		return e.Due >= 0 && e.Cause <= CauseDisconnected
	case KindAdded:
		return e.Added != nil && e.Added.Count > 0
	}
	return e.Kind != 0
}

func readProducer(r *wire.Reader) Producer {
	return Producer{ID: r.String(maxIDBytes), Incarnation: r.String(maxIDBytes)}
}

func readSpans(r *wire.Reader) []Span {
	n := r.Count(2, math.MaxInt32)
	spans := make([]Span, n)
	end := uint64(0)
	for i := range spans {
		s := Span{Seq: end + uint64(r.Int()), Count: r.Uint()}
		end = s.Seq + s.Count
		if s.Count == 0 || end < s.Seq || end > maxSeq {
			r.Fail()
		}
		if r.Bad {
			return nil
		}
		spans[i] = s
	}
	return spans
}

func readTime(r *wire.Reader, at int64) int64 {
	v := r.Uint()
	if v == 0 {
		return 0
	}
	v--
	return at + (int64(v>>1) ^ -int64(v&1))
}

func readAdded(r *wire.Reader, at int64) *Added {
	f := r.Byte()
	a := &Added{Count: r.Uint()}
	if a.Count > maxAdded || f >= addedSpecials<<1 {
		r.Fail()
	}
	if f&addedProducer != 0 {
		a.Producer = readProducer(r)
		a.ProducerSeq = r.Uint()
		a.ProducerLast = a.ProducerSeq + r.Uint()
		if !a.Producer.valid() || a.ProducerSeq == 0 || a.ProducerLast-a.ProducerSeq > maxAdded {
			r.Fail()
		}
	}
	if f&addedNotBefore != 0 {
		a.NotBefore = readTime(r, at)
	}
	if r.Bad {
		return nil
	}
	if f&addedSizes == 0 {
		a.Uniform = uint32(r.Count(0, math.MaxUint32))
	} else if a.Count > uint64(len(r.B)) {
		r.Fail()
	} else {
		a.Sizes = make([]uint32, a.Count)
		for i := range a.Sizes {
			a.Sizes[i] = uint32(r.Count(0, math.MaxUint32))
		}
	}
	if f&addedSpecials != 0 && !r.Bad {
		a.Specials = readSpecials(r, a.Count, at)
	}
	return a
}

func readSpecials(r *wire.Reader, count uint64, at int64) []Special {
	n := r.Count(0, count)
	first := r.Uint()
	form := r.Byte()
	if r.Bad || n == 0 || first >= count || form == columnEqual || form > columnEach || form == columnEach && n > len(r.B)+1 {
		r.Fail()
		return nil
	}
	sp := make([]Special, n)
	for i := range sp {
		if i > 0 && form == columnEach {
			first += r.Uint()
		}
		if first >= count {
			r.Fail()
			return nil
		}
		sp[i].Index = uint32(first)
		first++
	}
	readColumn(r, sp, func(s *Special, v int64) { s.NotBefore = v }, func() int64 { return readTime(r, at) })
	readColumn(r, sp, func(s *Special, v int64) { s.ExpiresAt = v }, func() int64 { return readTime(r, at) })
	readColumn(r, sp, func(s *Special, v byte) { s.Priority = v }, r.Byte)
	readColumn(r, sp, func(s *Special, v uint64) { s.KeyHash = v }, r.Uint64)
	readColumn(r, sp, func(s *Special, v [16]byte) { s.DedupHash = v }, func() (v [16]byte) {
		copy(v[:], r.Bytes(len(v)))
		return v
	})
	readColumn(r, sp, func(s *Special, v byte) { s.Foreign = v == 1 }, r.Byte)
	for i := range sp {
		if sp[i].Priority > maxPriority || sp[i].NotBefore < 0 || sp[i].ExpiresAt < 0 {
			r.Fail()
		}
	}
	return sp
}

func readColumn[T any](r *wire.Reader, sp []Special, set func(*Special, T), dec func() T) {
	switch r.Byte() {
	case columnNone:
	case columnEqual:
		v := dec()
		for i := range sp {
			set(&sp[i], v)
		}
	case columnEach:
		for i := range sp {
			set(&sp[i], dec())
		}
	default:
		r.Fail()
	}
}
