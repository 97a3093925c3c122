package persistent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/holdfastmq/holdfast/journal"
)

// The meta part of a record is
//
//	byte    version of this format
//	varint  queue time of the first event, Unix ms
//	frames
//
// and a frame is a uvarint of value<<2 | kind, followed by value bytes where the kind is an event.
const metaVersion = 1

// The kinds of frames.
const (
	frameEvent    = 0 // an event: value bytes of the codec
	frameBodyless = 1 // the same, of an event whose body was left out, for it was refused (see full.go)
	frameTime     = 2 // later events were decided value ms later
	frameUndone   = 3 // the event before this frame undoes the bodyless one at seq value
)

// maxFrameHead bounds what a frame takes besides an event's bytes; maxMetaHead what stands before the frames.
const (
	maxFrameHead = binary.MaxVarintLen64
	maxMetaHead  = 1 + binary.MaxVarintLen64
)

func appendMetaHead(dst []byte, at int64) []byte {
	return binary.AppendVarint(append(dst, metaVersion), at)
}

func appendFrame(dst []byte, kind, value uint64) []byte {
	return binary.AppendUvarint(dst, value<<2|kind)
}

var errMeta = errors.New("meta part is malformed")

// metaReader steps through the frames of a meta part.
type metaReader struct {
	rest []byte
	at   int64 // queue time of the next event
}

func newMetaReader(meta []byte) (metaReader, error) {
	if len(meta) == 0 {
		return metaReader{}, errMeta
	}
	if meta[0] > metaVersion {
		return metaReader{}, fmt.Errorf("meta part of version %d, this binary reads up to %d: %w", meta[0], metaVersion, journal.ErrNewerFormat)
	}
	at, n := binary.Varint(meta[1:])
	if meta[0] != metaVersion || n <= 0 {
		return metaReader{}, errMeta
	}
	return metaReader{rest: meta[1+n:], at: at}, nil
}

// next returns the next frame and, of events, their bytes. It must not be called when nothing rests.
func (r *metaReader) next() (kind, value uint64, event []byte, err error) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return 0, 0, nil, errMeta
	}
	r.rest = r.rest[n:]
	kind, value = v&3, v>>2
	switch kind {
	case frameEvent, frameBodyless:
		if value > uint64(len(r.rest)) {
			return 0, 0, nil, errMeta
		}
		event, r.rest = r.rest[:value:value], r.rest[value:]
	case frameTime:
		if value > math.MaxInt64 || r.at > math.MaxInt64-int64(value) {
			return 0, 0, nil, errMeta
		}
		r.at += int64(value)
	}
	return kind, value, event, nil
}
