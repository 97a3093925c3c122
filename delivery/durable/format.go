package durable

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// formatVersion begins every event and snapshot.
const formatVersion = 1

// The kinds of events.
const (
	kindBorn    = 'b' // the producer's id and incarnation
	kindSent    = 's' // messages under consecutive numbers
	kindSettled = 'd' // ranges of numbers that are confirmed
)

// event is what is stored. An event's bytes are: the version, the kind, and
//
//	born:    id, incarnation, each a length and bytes
//	sent:    first number, count, then each body: a length and bytes
//	settled: count, then each range: first number, length
//
// with all numbers as unsigned varints.
type event struct {
	kind            byte
	id, incarnation string
	first           uint64
	bodies          [][]byte
	settled         []delivery.SeqRange
}

// maxVarint is the most bytes of a number.
const maxVarint = binary.MaxVarintLen64

var errShort = errors.New("ends too early")

// codec is the persistent.Codec of events.
type codec struct{ persistent.Bodyless[event] }

// AppendMeta appends an event.
func (codec) AppendMeta(dst []byte, e event) ([]byte, error) {
	dst = append(dst, formatVersion, e.kind)
	switch e.kind {
	case kindBorn:
		dst = appendBytes(appendBytes(dst, e.id), e.incarnation)
	case kindSent:
		dst = binary.AppendUvarint(dst, e.first)
		dst = binary.AppendUvarint(dst, uint64(len(e.bodies)))
		for _, b := range e.bodies {
			dst = appendBytes(dst, b)
		}
	case kindSettled:
		dst = binary.AppendUvarint(dst, uint64(len(e.settled)))
		for _, r := range e.settled {
			dst = binary.AppendUvarint(dst, r.First)
			dst = binary.AppendUvarint(dst, r.Last-r.First+1)
		}
	default:
		return dst, fmt.Errorf("event of unknown kind %q", e.kind)
	}
	return dst, nil
}

// DecodeMeta reads an event.
func (codec) DecodeMeta(b []byte) (event, error) {
	r := reader{rest: b}
	r.version("event")
	e := event{kind: r.byte()}
	switch e.kind {
	case kindBorn:
		e.id, e.incarnation = string(r.bytes()), string(r.bytes())
	case kindSent:
		e.first = r.number()
		for n := r.count(); n > 0 && r.err == nil; n-- {
			e.bodies = append(e.bodies, append([]byte{}, r.bytes()...))
		}
	case kindSettled:
		for n := r.count(); n > 0 && r.err == nil; n-- {
			first, length := r.number(), r.number()
			if length < 1 || length > delivery.MaxSeq || first > delivery.MaxSeq {
				r.fail(fmt.Errorf("settled range of %d from %d", length, first))
			}
			e.settled = append(e.settled, delivery.SeqRange{First: first, Last: first + length - 1})
		}
	default:
		r.fail(fmt.Errorf("event of unknown kind %q", e.kind))
	}
	return e, r.end()
}

// snapshot is the state as it is stored: the version, id, incarnation, next number, count of pending messages, and each as
// number, length and bytes.
type snapshot struct {
	id, incarnation string
	next            uint64
	pending         []delivery.StoredMessage
}

// chunkSize is where the snapshot is cut.
const chunkSize = 64 << 10

// chunks yields the bytes of the snapshot.
func (s *snapshot) chunks(yield func([]byte) bool) {
	buf := []byte{formatVersion}
	buf = appendBytes(appendBytes(buf, s.id), s.incarnation)
	buf = binary.AppendUvarint(buf, s.next)
	buf = binary.AppendUvarint(buf, uint64(len(s.pending)))
	for i := range s.pending {
		buf = binary.AppendUvarint(buf, s.pending[i].Seq)
		buf = appendBytes(buf, s.pending[i].Body)
		for len(buf) >= chunkSize {
			if !yield(buf[:chunkSize]) {
				return
			}
			buf = append([]byte(nil), buf[chunkSize:]...)
		}
	}
	if len(buf) > 0 {
		yield(buf)
	}
}

func parseSnapshot(b []byte) (snapshot, error) {
	r := reader{rest: b}
	r.version("snapshot")
	s := snapshot{id: string(r.bytes()), incarnation: string(r.bytes()), next: r.number()}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		seq := r.number()
		s.pending = append(s.pending, delivery.StoredMessage{Seq: seq, Body: append([]byte{}, r.bytes()...)})
	}
	return s, r.end()
}

func appendBytes[B string | []byte](dst []byte, b B) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// reader reads what was appended. Its first error stays.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) version(what string) {
	if v := r.byte(); r.err == nil && v != formatVersion {
		r.fail(fmt.Errorf("%w: %s of a durable producer has version %d, this one reads %d", journal.ErrNewerFormat, what, v, formatVersion))
	}
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads how many things follow, each of at least a byte.
func (r *reader) count() uint64 {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail(errShort)
		return 0
	}
	return n
}

func (r *reader) bytes() []byte {
	n := r.count()
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Errorf("%d bytes too many", len(r.rest)))
	}
	return r.err
}
