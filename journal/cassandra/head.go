package cassandra

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// head is what the head of a stream says. A stream that never was has none: exists is false.
type head struct {
	exists  bool
	fence   int64 // twice the epoch; one more while the stream is being dropped, and after
	uid     journal.UID
	low     uint64
	tail    uint64 // start of the newest bucket that may hold records
	dropped bool
	base    place // the end behind which this life of the stream began or, if it was dropped, ended
	fences  []fence
	parts   directory
	slot    int64 // the lowest slot that was never used
	rev     int64 // of the last change within an epoch
}

// place is an end of a stream.
type place struct {
	end  uint64
	crc  uint32
	time int64
}

func (h *head) epoch() uint64 { return uint64(h.fence) / 2 }

// info returns the state of a stream that ends at p.
func (h *head) info(name string, p place) journal.Info {
	return journal.Info{
		Name: name, UID: h.uid, Epoch: h.epoch(), Low: min(h.low, p.end+1), Dropped: h.dropped,
		End: p.end, EndCRC: p.crc, EndTime: p.time,
	}
}

// readHead reads the head of a stream: serially, or from a majority.
func (j *Journal) readHead(ctx context.Context, key string, serially bool) (head, error) {
	read := j.read
	if serially {
		read = j.serially
	}
	r, found, err := read(ctx, cqlHead, key)
	if err != nil || !found || r.int("fence") == 0 {
		return head{}, err
	}
	h := head{
		exists: true, fence: r.int("fence"), low: r.seq("low"), tail: r.seq("tail"), dropped: r.bool("dropped"), slot: r.int("next_slot"), rev: r.int("rev"),
		base: place{r.seq("base_end"), uint32(r.int("base_crc")), r.int("base_time")},
	}
	copy(h.uid[:], r.bytes("uid"))
	if h.fences, err = decodeFences(r.bytes("fences")); err == nil {
		h.parts, err = decodeDirectory(r.bytes("parts"))
	}
	return h, err
}

// bucketHead is what the head of a bucket says.
type bucketHead struct {
	start uint64
	fence int64
	place
	closed  bool
	records int
	bytes   int64
}

// readBucket reads the head of a bucket serially: what was being appended is then either in it, or will never be under a
// lower fence than the one that it says.
func (j *Journal) readBucket(ctx context.Context, key string, start uint64) (b bucketHead, found bool, err error) {
	r, found, err := j.serially(ctx, cqlBucket, key, int64(start))
	if err != nil || !found || r.int("fence") == 0 {
		return b, false, err
	}
	return bucketHead{
		start: start, fence: r.int("fence"), place: place{r.seq("end_seq"), uint32(r.int("end_crc")), r.int("end_time")},
		closed: r.bool("closed"), records: int(r.int("records")), bytes: r.int("bytes"),
	}, true, nil
}

// newestPlace finds the head of the newest bucket, and where the stream ends. The bucket's fence is 0 if it has not been opened yet.
func (j *Journal) newestPlace(ctx context.Context, key string, h *head) (bucketHead, error) {
	for range 100 {
		b, found, err := j.readBucket(ctx, key, h.tail)
		if err != nil || found {
			return b, err
		}
		was := *h
		if *h, err = j.readHead(ctx, key, true); err != nil {
			return b, err
		}
		switch {
		case h.dropped:
			return bucketHead{start: h.tail, place: h.base, closed: true}, nil
		case h.tail != was.tail:
			// The stream has gone on, and that bucket was dropped.
		case h.tail == h.base.end:
			return bucketHead{start: h.tail, place: h.base}, nil
		default:
			return b, &journal.CorruptError{Seq: h.tail + 1, What: fmt.Sprintf("the newest bucket, that behind seq %d, has no head", h.tail)}
		}
	}
	return bucketHead{}, errors.New("the stream goes on faster than it can be read")
}

// fence remembers where the stream ended when an epoch began: what older epochs have stored is at or before it.
type fence struct {
	epoch uint64
	end   uint64
	crc   uint32
}

// maxFences bounds how many epochs a stream remembers the beginnings of. An owner that is more takeovers late is told journal.ErrUnknown where it
// could be told more.
const maxFences = 256

const fenceSize = 20

func encodeFences(fences []fence) []byte {
	b := make([]byte, 0, fenceSize*len(fences))
	for _, f := range fences {
		b = binary.BigEndian.AppendUint64(b, f.epoch)
		b = binary.BigEndian.AppendUint64(b, f.end)
		b = binary.BigEndian.AppendUint32(b, f.crc)
	}
	return b
}

func decodeFences(b []byte) ([]fence, error) {
	if len(b)%fenceSize != 0 {
		return nil, &journal.CorruptError{What: fmt.Sprintf("list of epochs of %d bytes", len(b))}
	}
	var fences []fence
	for ; len(b) > 0; b = b[fenceSize:] {
		fences = append(fences, fence{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])})
	}
	return fences, nil
}

// after returns the end of all that owners up to epoch have stored, if that is known.
func (h *head) after(epoch uint64) (fence, bool) {
	i, _ := slices.BinarySearchFunc(h.fences, epoch+1, func(f fence, e uint64) int { return cmp.Compare(f.epoch, e) })
	if i == len(h.fences) || i == 0 && len(h.fences) == maxFences && h.fences[0].epoch != epoch+1 {
		return fence{}, false
	}
	return h.fences[i], true
}

// spans are sets of seqs, as ascending ranges with a gap between them.
type spans []journal.Range

// allGone is the mark of a bucket none of whose bodies is alive, nor ever will be.
var allGone = []byte{0xff}

// encode returns the set as it is stored with a bucket: differences as varints.
func (s spans) encode() []byte {
	b := []byte{}
	at := uint64(0)
	for _, r := range s {
		b = binary.AppendUvarint(b, r.From-at)
		b = binary.AppendUvarint(b, r.To-r.From)
		at = r.To
	}
	return b
}

// decodeGone reads the mark of a bucket: the set of the first seqs whose bodies are gone.
func decodeGone(b []byte) (s spans, all bool, err error) {
	if bytes.Equal(b, allGone) {
		return nil, true, nil
	}
	at := uint64(0)
	for len(b) > 0 {
		from, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, false, &journal.CorruptError{What: "list of discarded bodies"}
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 || at+from < at || at+from+length < at+from {
			return nil, false, &journal.CorruptError{What: "list of discarded bodies"}
		}
		r := journal.Range{From: at + from, To: at + from + length}
		s, at, b = append(s, r), r.To, b[n+m:]
	}
	return s, false, nil
}

func (s spans) has(seq uint64) bool {
	i, _ := slices.BinarySearchFunc(s, seq, func(r journal.Range, seq uint64) int { return cmp.Compare(r.To, seq) })
	return i < len(s) && s[i].From <= seq
}
