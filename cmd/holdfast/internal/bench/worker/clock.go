package worker

import (
	"encoding/binary"
	"time"
)

// stampBytes is how much of a body is the time at which it was due, in Unix nanoseconds; 0 says nothing.
const stampBytes = 8

func stamp(body []byte, at time.Time) { binary.LittleEndian.PutUint64(body, uint64(at.UnixNano())) }

func unstamp(body []byte) { binary.LittleEndian.PutUint64(body, 0) }

// stamped returns the time that a body has.
func stamped(body []byte) (time.Time, bool) {
	if len(body) < stampBytes {
		return time.Time{}, false
	}
	n := binary.LittleEndian.Uint64(body)
	return time.Unix(0, int64(n)), n != 0
}

// pace tells when the messages of a steady rate are due. They are due whether or not those before them could be sent in time, so that what is held up
// counts as waiting from when it was due (no coordinated omission).
type pace struct {
	began time.Time
	rate  float64 // per second
	n     int64
}

// next returns when the next message is due, and counts it.
func (p *pace) next() time.Time {
	at := p.began.Add(time.Duration(float64(p.n) / p.rate * float64(time.Second)))
	p.n++
	return at
}
