package hbase

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// headVersion is the version of heads and fences that this package writes.
const headVersion = 1

// head is the state of a stream, as the head of its last bucket has it. Heads before the last one are closed, and have what
// was so when they were closed; of those only first, end, uid and the sums are of use.
type head struct {
	// closed heads never change: the stream goes on in the bucket that begins behind end.
	closed  bool
	dropped bool
	uid     journal.UID
	epoch   uint64
	nonce   uint64 // of the Acquire that gave the epoch
	rev     uint64 // counts the changes, so that no two heads of a bucket are equal
	first   uint64 // the bucket begins with this seq
	end     uint64 // the stream ends with this one, which may be before first
	crc     uint32 // of the record that ends there
	time    int64
	low     uint64 // as Info.Low
	// metas and bodies: there is none any more before these seqs. They may lag behind.
	metas, bodies uint64
	// Of the bucket, discarded ones included.
	records, metaBytes, bodyBytes uint64
}

const headSize = 2 + 16 + 12*8 + 2*4

func (h *head) encode() []byte {
	b := make([]byte, 0, headSize)
	flags := byte(0)
	if h.closed {
		flags |= 1
	}
	if h.dropped {
		flags |= 2
	}
	b = append(b, headVersion, flags)
	b = append(b, h.uid[:]...)
	for _, v := range []uint64{
		h.epoch, h.nonce, h.rev, h.first, h.end, uint64(h.time), h.low, h.metas, h.bodies, h.records, h.metaBytes, h.bodyBytes,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, h.crc)
	return binary.BigEndian.AppendUint32(b, journal.Checksum(b))
}

func decodeHead(b []byte) (h head, err error) {
	if len(b) > 0 && b[0] > headVersion {
		return h, fmt.Errorf("head of version %d, this binary reads up to %d: %w", b[0], headVersion, journal.ErrNewerFormat)
	}
	if len(b) != headSize || b[0] != headVersion || b[1] > 3 || journal.Checksum(b[:headSize-4]) != binary.BigEndian.Uint32(b[headSize-4:]) {
		return h, fmt.Errorf("head of a bucket: does not verify: %w", journal.ErrCorrupt)
	}
	h.closed, h.dropped = b[1]&1 != 0, b[1]&2 != 0
	copy(h.uid[:], b[2:18])
	var t uint64
	for i, v := range []*uint64{
		&h.epoch, &h.nonce, &h.rev, &h.first, &h.end, &t, &h.low, &h.metas, &h.bodies, &h.records, &h.metaBytes, &h.bodyBytes,
	} {
		*v = binary.BigEndian.Uint64(b[18+8*i:])
	}
	h.time = int64(t)
	h.crc = binary.BigEndian.Uint32(b[headSize-8:])
	return h, nil
}

func (h *head) info(name string) journal.Info {
	return journal.Info{
		Name: name, UID: h.uid, Epoch: h.epoch, End: h.end, EndCRC: h.crc, EndTime: h.time, Low: h.low, Dropped: h.dropped,
	}
}

// empty tells that no record was ever put into the bucket. Such a bucket is never swept: it may still get some.
func (h *head) empty() bool { return h.end < h.first }

// average returns the mean size of the n things that have these bytes together, at least 1.
func average(bytes, n uint64) uint64 { return max(1, bytes/max(1, n)) }

// ended is how an epoch ended: where the stream ended when the next one was acquired.
type ended struct {
	end uint64
	crc uint32
}

func (e ended) encode() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, e.end), e.crc)
}

func decodeEnded(b []byte) (e ended, err error) {
	if len(b) != 12 {
		return e, fmt.Errorf("end of an epoch: does not verify: %w", journal.ErrCorrupt)
	}
	return ended{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}, nil
}

// bucketFence is the value of h:e in an open bucket. It changes with every Acquire.
func bucketFence(epoch, nonce uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, epoch), nonce)
}

// closedFence is the value of h:e in a closed bucket: nobody's.
var closedFence = []byte("closed")

// fence is the value of h:e in a stream's row: under whom parts are written.
//
// Parts have time stamps of the owner's own making, so that neither the clocks of region servers nor the lateness of
// a request decides which write of a part is the newer one: base+1, base+2, …. Every owner has span of them.
type fence struct {
	there, dropped bool
	uid            journal.UID
	epoch, nonce   uint64
	base           uint64
}

const (
	stampSpan = 1 << 32
	fenceSize = 2 + 16 + 3*8
)

func (f *fence) encode() []byte {
	b := []byte{headVersion, 0}
	if f.dropped {
		b[1] = 1
	}
	b = append(b, f.uid[:]...)
	for _, v := range []uint64{f.epoch, f.nonce, f.base} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeFence(b []byte) (f fence, err error) {
	if len(b) > 0 && b[0] > headVersion {
		return f, fmt.Errorf("fence of version %d, this binary reads up to %d: %w", b[0], headVersion, journal.ErrNewerFormat)
	}
	if len(b) != fenceSize || b[1] > 1 {
		return f, fmt.Errorf("fence of a stream's parts: does not verify: %w", journal.ErrCorrupt)
	}
	f.there, f.dropped = true, b[1] == 1
	copy(f.uid[:], b[2:18])
	f.epoch, f.nonce, f.base = binary.BigEndian.Uint64(b[18:]), binary.BigEndian.Uint64(b[26:]), binary.BigEndian.Uint64(b[34:])
	return f, nil
}
