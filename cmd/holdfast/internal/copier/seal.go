package copier

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// sealAs seals a record behind one of CRC prev such that its own CRC is crc, by giving it a meta of four bytes that
// make it so: it stands for a record, or many, that the target cannot have, and the record behind them is
// linked to that CRC.
func sealAs(rec *journal.Record, prev, crc uint32) error {
	rec.Meta = make([]byte, 4)
	if err := rec.Seal(prev); err != nil {
		return err
	}
	h := rec.Header
	meta := make([]byte, 4)
	value := func(x uint32) uint32 {
		binary.LittleEndian.PutUint32(meta, x)
		h.MetaCRC = journal.Checksum(meta)
		b := journal.AppendHeader(nil, &h)
		return journal.Checksum(b[:journal.HeaderSize-4])
	}
	binary.LittleEndian.PutUint32(rec.Meta, solve(value, crc))
	if err := rec.Seal(prev); err != nil {
		return err
	}
	if rec.CRC != crc {
		return fmt.Errorf("a record of seqs %d…%d cannot be given the CRC %08x", rec.First, rec.Last(), crc)
	}
	return nil
}

// solve returns x with f(x) = want, for an f that is affine over bits and has an inverse, as a CRC of four bytes is.
func solve(f func(x uint32) uint32, want uint32) uint32 {
	base := f(0)
	// rows[i] is a combination of columns whose highest bit is i, and how it comes about.
	var rows [32]struct{ value, from uint32 }
	for i := range 32 {
		v, from := f(1<<i)^base, uint32(1)<<i
		for bit := 31; bit >= 0 && v != 0; bit-- {
			if v>>bit&1 == 0 {
				continue
			}
			if rows[bit].value == 0 {
				rows[bit].value, rows[bit].from = v, from
				break
			}
			v, from = v^rows[bit].value, from^rows[bit].from
		}
	}
	x, left := uint32(0), want^base
	for bit := 31; bit >= 0; bit-- {
		if left>>bit&1 == 1 {
			left, x = left^rows[bit].value, x^rows[bit].from
		}
	}
	return x
}
