package journaltest

import (
	"fmt"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

var limitRules = []Rule{
	{Name: "record", Promise: "A record of MaxRecordBytes is stored; a larger one is ErrTooLarge, and nothing is stored.", check: limitRecord},
	{Name: "part", Promise: "A part of MaxPartBytes is stored; a larger one is ErrTooLarge, and nothing is stored.", check: limitPart},
	{Name: "names", Promise: "Names of streams and parts are of 1…200 bytes of printable ASCII; any other is ErrInvalid.", check: limitNames},
}

// sized makes the owner's next record with a Size of n, out of few bytes of memory.
func (o *owner) sized(n int) *journal.Record {
	r := o.record(1, o.blob(100), nil)
	block := o.blob(1 << 16)
	for n -= journal.HeaderSize + 100; n > 0; n -= len(block) {
		block = block[:min(n, len(block))]
		r.Body = append(r.Body, block)
	}
	o.seal(r)
	return r
}

func limitRecord(e *env) {
	lim := e.j.Limits()
	if lim.MaxRecordBytes < journal.HeaderSize+1 || lim.MaxPartBytes < 1 {
		e.Fatalf("unusable limits %+v", lim)
	}
	o := e.acquire(e.j, "orders")
	recs := o.append(1)
	fits := o.sized(min(lim.MaxRecordBytes, e.cfg.MaxBytes))
	o.put(fits)
	recs = append(recs, fits)
	if lim.MaxRecordBytes <= e.cfg.MaxBytes {
		before := e.photo(o.s)
		for _, n := range []int{lim.MaxRecordBytes + 1, 2 * lim.MaxRecordBytes} {
			r := o.sized(n)
			e.refused(fmt.Sprintf("append a record of %d bytes", n), func() error { return o.s.Append(e.ctx, o.end, r) }, journal.ErrTooLarge)
		}
		e.unchanged("an append that is too large", o.s, before)
	}
	recs = append(recs, o.append(1)...)
	o.wantStream(o.s, recs)
	if got := e.j.Limits(); got != lim {
		e.Fatalf("the limits have changed from %+v to %+v", lim, got)
	}
}

func limitPart(e *env) {
	lim := e.j.Limits()
	o := e.acquire(e.j, "orders")
	data := e.blob(min(lim.MaxPartBytes, e.cfg.MaxBytes))
	o.writePart("p", data)
	e.wantPart(o.s, "p", data)
	if lim.MaxPartBytes > e.cfg.MaxBytes {
		return
	}
	large := make([]byte, lim.MaxPartBytes+1)
	for _, name := range []string{"p", "q"} {
		e.refused("write a part that is too large", func() error { return o.s.WritePart(e.ctx, name, large) }, journal.ErrTooLarge)
	}
	e.wantPart(o.s, "p", data)
	e.wantNoPart(o.s, "q")
}

func limitNames(e *env) {
	o := e.acquire(e.j, "orders")
	for _, name := range []string{"", strings.Repeat("n", 201), "a\nb", "a\x00", "\x7f", "ä", "\xff"} {
		_, err := e.j.Acquire(e.ctx, name)
		e.refused(fmt.Sprintf("acquire stream %q", name), func() error { return err }, journal.ErrInvalid)
		_, err = e.j.Open(e.ctx, name)
		e.refused(fmt.Sprintf("open stream %q", name), func() error { return err }, journal.ErrInvalid)
		e.refused(fmt.Sprintf("write part %q", name), func() error { return o.s.WritePart(e.ctx, name, nil) }, journal.ErrInvalid)
	}
	var printable strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		printable.WriteByte(c)
	}
	long := strings.Repeat("n", 199)
	names := []string{printable.String(), long + "1", long + "2", ".", "..", "*", ">", " ", "%", "%25", "x", "X", "x/", "x/y", `x\y`, "x.y", "x y"}
	var ended []*owner
	for i, name := range names {
		s := e.acquire(e.j, name)
		s.append(1 + i)
		ended = append(ended, s)
		o.writePart(name, []byte(name))
	}
	for i, name := range names {
		ended[i].wantEnd(e.reader(e.j, name))
		e.wantPart(o.s, name, []byte(name))
		e.wantNoPart(ended[i].s, name)
	}
}
