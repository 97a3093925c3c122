package cassandra

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// §4: a change that a node makes late, after its own repetition and later changes, does nothing. The client
// repeats requests that time out, and cannot take them back.
func TestLateRequests(t *testing.T) {
	o := options(t, server.URL())
	o.BucketRecords = 3
	j := open(t, o)
	w := newWriter(t, j, "orders")
	w.append(4, 100)
	h := w.s.(*hold)
	// What each change sends, taken from a repetition of it that is not sent.
	at := func() head {
		t.Helper()
		now, err := j.readHead(t.Context(), h.key, true)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := at()
	change := func(f func() error) {
		t.Helper()
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	change(func() error { return w.s.WritePart(t.Context(), "p", []byte("old")) })
	named := at()
	change(func() error { return w.s.WritePart(t.Context(), "p", []byte("new")) })
	change(func() error { return w.s.DiscardMeta(t.Context(), 2) })
	lowered := at()
	change(func() error { return w.s.DiscardMeta(t.Context(), 4) })
	change(func() error {
		return w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: 2}})
	})
	w.append(6, 100)
	now := at()
	for what, late := range map[string]statement{
		"a part":          {cqlSetParts, []any{named.parts.encode(nil), named.slot, named.rev, h.key, h.fence, before.rev}},
		"a discard":       {cqlSetLow, []any{int64(2), lowered.rev, h.key, h.fence, named.rev}},
		"a mark":          {cqlSetGone, []any{[]byte{}, int64(7), h.key, int64(0), h.fence, before.rev}},
		"a second bucket": {cqlAdvance, []any{int64(3), h.key, int64(3), h.fence, int64(0)}},
		"an acquisition":  {cqlRaise, []any{h.fence, h.key, nil}},
		"an opening":      {cqlOpen, []any{h.fence, int64(3), int64(0), int64(0), h.key, int64(3)}},
	} {
		applied, _, err := j.cas(t.Context(), late.cql, late.args...)
		if err != nil || applied {
			t.Errorf("%s that comes late: applied %v, %v", what, applied, err)
		}
	}
	if got := at(); got.low != now.low || got.tail != now.tail || got.rev != now.rev || got.fence != now.fence {
		t.Errorf("late requests have changed the head from %+v to %+v", now, got)
	}
	data, err := w.s.ReadPart(t.Context(), "p")
	if err != nil || !bytes.Equal(data, []byte("new")) {
		t.Errorf("the part is %q, %v", data, err)
	}
}

// §4: an owner that opens the next bucket after its successor has filled, discarded and dropped it finds nothing to compare with;
// nothing of it is seen, and its append is fenced. The control shows that the step which fences it is needed.
func TestLateOpening(t *testing.T) {
	o := options(t, server.URL())
	o.BucketRecords = 3
	j := open(t, o)
	old := newWriter(t, j, "orders")
	old.append(3, 100) // the bucket is full
	late := old.next(1, 100)
	next := newWriter(t, j, "orders")
	next.append(9, 100)
	err := errors.Join(next.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: math.MaxUint64}}), next.s.DiscardMeta(t.Context(), 1<<60))
	if err != nil {
		t.Fatal(err)
	}
	h := old.s.(*hold)
	applied, _, err := j.cas(t.Context(), cqlOpen, h.fence, int64(3), int64(late.PrevCRC), int64(0), h.key, int64(3))
	if err != nil || !applied {
		t.Fatalf("opening a dropped bucket: applied %v, %v; this test proves nothing", applied, err)
	}
	if b, found, err := j.readBucket(t.Context(), h.key, 3); found || err != nil {
		t.Errorf("a bucket that was dropped has the head %+v, %v", b, err)
	}
	if err := old.s.Append(t.Context(), 3, late); !errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrUnknown) {
		t.Errorf("late append: %v, want ErrFenced", err)
	}
	next.append(1, 100)
}

// §4: two members that change one entry are ordered by the servers, whatever their clocks say.
func TestMemberRequestComesLate(t *testing.T) {
	o := options(t, server.URL())
	j := open(t, o)
	put := func(data string) {
		t.Helper()
		if err := j.PutMember(t.Context(), "a", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	stamp := func() int64 {
		t.Helper()
		r, _, err := j.serially(t.Context(), cqlMember, j.key("a"))
		if err != nil {
			t.Fatal(err)
		}
		return r.int("stamp")
	}
	put("1")
	first := stamp()
	put("2")
	second := stamp()
	put("3")
	if applied, _, err := j.cas(t.Context(), cqlPutMember, []byte("2"), second, j.key("a"), first); applied || err != nil {
		t.Errorf("a late repetition: applied %v, %v", applied, err)
	}
	all, err := j.Members(t.Context())
	if err != nil || string(all["a"]) != "3" {
		t.Errorf("%q, %v", all, err)
	}
}

// A stream whose newest bucket is full, and the next one not begun, ends there for readers too, from wherever they read.
func TestReadBehindFullBucket(t *testing.T) {
	o := options(t, server.URL())
	o.BucketRecords = 3
	j := open(t, o)
	w := newWriter(t, j, "orders")
	for range 7 {
		for from := range w.end.end + 5 {
			n, want := 0, uint64(len(w.acked))-min(max(from, 1)-1, w.end.end)
			for _, err := range w.s.ReadMeta(t.Context(), from, math.MaxUint64) {
				if err != nil {
					t.Fatalf("%d records, reading from %d: %v", len(w.acked), from, err)
				}
				n++
			}
			if n != int(want) {
				t.Errorf("%d records, reading from %d yields %d, want %d", len(w.acked), from, n, want)
			}
		}
		w.append(1, 10)
	}
}
