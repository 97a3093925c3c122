package pebble

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// head is a stream's state. Its row is written in every batch that changes it.
type head struct {
	uid     journal.UID
	epoch   uint64
	end     uint64
	endCRC  uint32
	endTime int64
	low     uint64
	dropped bool

	// Bytes of all metas ever written, and of those that are discarded; of bodies and parts
	// that are kept. Metas and bodies with their record headers.
	metaTotal, metaGone, bodyBytes, partBytes int64
}

const (
	headVersion = 1
	headSize    = 2 + 16 + 4*8 + 4 + 4*8 + 4

	headDropped = 1 // flag
)

func (h *head) live() int64 { return h.metaTotal - h.metaGone + h.bodyBytes + h.partBytes }

func (h *head) info(name string) journal.Info {
	return journal.Info{
		Name: name, UID: h.uid, Epoch: h.epoch, Dropped: h.dropped,
		End: h.end, EndCRC: h.endCRC, EndTime: h.endTime, Low: h.low,
	}
}

func appendHead(b []byte, h *head) []byte {
	n := len(b)
	var flags byte
	if h.dropped {
		flags |= headDropped
	}
	le := binary.LittleEndian
	b = append(b, headVersion, flags)
	b = append(b, h.uid[:]...)
	b = le.AppendUint64(b, h.epoch)
	b = le.AppendUint64(b, h.end)
	b = le.AppendUint64(b, uint64(h.endTime))
	b = le.AppendUint64(b, h.low)
	b = le.AppendUint32(b, h.endCRC)
	b = le.AppendUint64(b, uint64(h.metaTotal))
	b = le.AppendUint64(b, uint64(h.metaGone))
	b = le.AppendUint64(b, uint64(h.bodyBytes))
	b = le.AppendUint64(b, uint64(h.partBytes))
	return le.AppendUint32(b, journal.Checksum(b[n:]))
}

func parseHead(b []byte) (head, error) {
	var h head
	if len(b) > 0 && b[0] > headVersion {
		return h, fmt.Errorf("head row of version %d, this binary reads up to %d: %w", b[0], headVersion, journal.ErrNewerFormat)
	}
	le := binary.LittleEndian
	if len(b) != headSize || journal.Checksum(b[:headSize-4]) != le.Uint32(b[headSize-4:]) {
		return h, fmt.Errorf("head row: checksum does not match: %w", journal.ErrCorrupt)
	}
	h.dropped = b[1]&headDropped != 0
	copy(h.uid[:], b[2:18])
	h.epoch, h.end, h.endTime, h.low = le.Uint64(b[18:]), le.Uint64(b[26:]), int64(le.Uint64(b[34:])), le.Uint64(b[42:])
	h.endCRC = le.Uint32(b[50:])
	h.metaTotal, h.metaGone = int64(le.Uint64(b[54:])), int64(le.Uint64(b[62:]))
	h.bodyBytes, h.partBytes = int64(le.Uint64(b[70:])), int64(le.Uint64(b[78:]))
	return h, nil
}
