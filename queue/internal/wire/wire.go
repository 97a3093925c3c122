// Package wire reads and writes the pieces that events and snapshots are made of: unsigned varints, signed ones in zigzag form,
// strings with their length before them.
package wire

import "encoding/binary"

// AppendInt appends a signed number.
func AppendInt(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}

// AppendString appends a string with its length.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Reader takes pieces off the front of B. After the first one that is not there, Bad is set, B is empty, and all further pieces are
// zero: so it is enough to look at Bad at the end, and before anything is done as often as a number says.
type Reader struct {
	B   []byte
	Bad bool
}

// Fail makes the reader bad.
func (r *Reader) Fail() { r.Bad, r.B = true, nil }

// Uint takes an unsigned number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int takes a signed number.
func (r *Reader) Int() int64 {
	v := r.Uint()
	return int64(v>>1) ^ -int64(v&1)
}

// Count takes a number of things, of which each takes at least so many bytes of what follows, and at most limit are allowed.
func (r *Reader) Count(bytesEach int, limit uint64) int {
	v := r.Uint()
	if v > limit || bytesEach > 0 && v > uint64(len(r.B)/bytesEach) {
		r.Fail()
		return 0
	}
	return int(v)
}

// Byte takes a byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.Fail()
		return 0
	}
	b := r.B[0]
	r.B = r.B[1:]
	return b
}

// Bytes takes n bytes, which share the memory of B.
func (r *Reader) Bytes(n int) []byte {
	if n > len(r.B) {
		r.Fail()
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Uint64 takes a number of eight bytes, little-endian.
func (r *Reader) Uint64() uint64 {
	if b := r.Bytes(8); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// String takes a string of at most limit bytes.
func (r *Reader) String(limit int) string {
	n := r.Uint()
	if n > uint64(limit) {
		r.Fail()
		return ""
	}
	return string(r.Bytes(int(n)))
}

// Done tells that everything was there, and nothing else.
func (r *Reader) Done() bool { return !r.Bad && len(r.B) == 0 }
