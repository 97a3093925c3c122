package memory

import (
	"bytes"
	"fmt"
	"slices"
)

// Damage is a way to damage stored data.
type Damage int

const (
	// DamageHeader changes a record's header.
	DamageHeader Damage = iota + 1
	// DamageMeta changes a byte of a record's meta, or adds one to an empty meta.
	DamageMeta
	// DamageBody changes a byte of a record's body.
	DamageBody
	// DamageRemove takes a record out without a trace.
	DamageRemove
)

// Damage damages the record of a stream whose first seq is given, as a broken disk would. Readers find
// it when they get there.
func (s *Store) Damage(name string, seq uint64, how Damage) error {
	st := s.lookup(name)
	if st == nil {
		return fmt.Errorf("damage: no stream %q", name)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	i, ok := slices.BinarySearchFunc(st.recs, seq, byFirst)
	if !ok {
		return fmt.Errorf("damage: stream %q has no record at seq %d", name, seq)
	}
	e := *st.recs[i] // stored slices and entries may be in the hands of readers
	switch how {
	case DamageHeader:
		e.Time++
	case DamageMeta:
		e.meta = flip(e.meta)
	case DamageBody:
		e.body = flip(e.body)
	case DamageRemove:
		st.recs = slices.Delete(slices.Clone(st.recs), i, i+1)
		return nil
	default:
		return fmt.Errorf("damage: unknown kind %d", how)
	}
	st.recs = slices.Clone(st.recs)
	st.recs[i] = &e
	return nil
}

// flip returns a copy of b with one byte changed.
func flip(b []byte) []byte {
	if len(b) == 0 {
		return []byte{1}
	}
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return b
}
