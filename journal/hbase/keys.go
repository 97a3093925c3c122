package hbase

import (
	"fmt"
	"strconv"

	"github.com/holdfastmq/holdfast/journal"
)

// Rows. Names and numbers are text, so that they can be read in the HBase shell:
//
//	HH NAME 00 FIRST   a bucket: HH are two hex digits of a hash of the name, FIRST the seq that it begins with, 16 hex digits
//	HH NAME 00         the stream's row: fence, parts, discards under way
//	~members           the table of members
//	~format            the version of all this
//
// Columns:
//
//	h:h                the head of a bucket
//	h:e                in a bucket: who may delete bodies in it, empty of rights once it is closed; in the stream's row: who may write parts
//	h:fEPOCH           in the bucket where that epoch ended: how it ended
//	h:dID              in the stream's row: ranges whose bodies are being deleted
//	m:LAST             header and meta of the record that ends with that seq
//	b:FIRST-LAST       header and body of a record
//	p:NAME             a part, or in ~members an entry
//	h:v                in ~format
const (
	familyHeads  = "h"
	familyMetas  = "m"
	familyBodies = "b"
	familyParts  = "p"

	rowMembers = "~members"
	rowFormat  = "~format"
)

var families = []string{familyHeads, familyMetas, familyBodies, familyParts}

// column is the name of a cell in its row.
type column struct{ family, qualifier string }

var (
	colHead   = column{familyHeads, "h"}
	colFence  = column{familyHeads, "e"}
	colFormat = column{familyHeads, "v"}
)

const discardPrefix = "d"

func colEnded(epoch uint64) column      { return column{familyHeads, "f" + hex(epoch)} }
func colMeta(last uint64) column        { return column{familyMetas, hex(last)} }
func colBody(first, last uint64) column { return column{familyBodies, hex(first) + "-" + hex(last)} }
func colDiscard(epoch, n uint64) column {
	return column{familyHeads, discardPrefix + hex(epoch) + "-" + hex(n)}
}
func hex(n uint64) string                        { return fmt.Sprintf("%016x", n) }
func bucketRow(base string, first uint64) string { return base + hex(first) }

// parseBody reads the qualifier of a body.
func parseBody(q []byte) (s span, ok bool) {
	if len(q) != 33 || q[16] != '-' {
		return s, false
	}
	var err1, err2 error
	s.first, err1 = strconv.ParseUint(string(q[:16]), 16, 64)
	s.last, err2 = strconv.ParseUint(string(q[17:]), 16, 64)
	return s, err1 == nil && err2 == nil
}

// streamRow returns the row of a stream, with which its buckets' rows begin.
func (j *Journal) streamRow(name string) string {
	return fmt.Sprintf("%s%02x%s\x00", j.opts.prefix, journal.Checksum([]byte(name))&0xff, name)
}

// nameOf returns the name of the stream that the row of a bucket belongs to.
func (j *Journal) nameOf(row []byte) (string, bool) {
	n, h := len(j.opts.prefix), len(row)-17
	if h < n+2 || row[h] != 0 {
		return "", false
	}
	return string(row[n+2 : h]), true
}

// afterBuckets is behind every bucket of a stream, and of every stream: no hex digit follows it.
const afterBuckets = "g"
