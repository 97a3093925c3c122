package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

var memberRules = []Rule{
	{Name: "table", Promise: "Members returns the entry that each member put last, as seen by every process.", needs: needs{members: true}, check: membersTable},
	{Name: "limits", Promise: "Ids obey CheckName and entries MaxMemberBytes; what does not is refused and changes nothing.", needs: needs{members: true}, check: membersLimits},
	{Name: "ownership", Promise: "The map and its data belong to the caller, and what was given to PutMember too.", needs: needs{members: true}, check: membersOwnership},
	{Name: "concurrent", Promise: "Members that put at the same time do not disturb each other, and none reads an older entry of its own.", needs: needs{members: true}, check: membersConcurrent},
	{Name: "unknown", Promise: "A change whose request or answer was lost is settled by repeating it.", needs: needs{members: true, hooks: true}, check: membersUnknown},
	{Name: "apart", Promise: "Entries are no streams: they are not listed, and a stream of the same name has nothing to do with them.", needs: needs{members: true}, check: membersApart},
	{Name: "close", Promise: "After Close the calls end with ErrClosed; the entries stay.", needs: needs{members: true, shared: true}, check: membersClose},
}

func (e *env) coordinator(j journal.Journal) journal.Coordinator {
	e.Helper()
	c, ok := j.(journal.Coordinator)
	if !ok {
		e.Fatalf("Config.Coordinates is set, but the journal is no journal.Coordinator")
	}
	return c
}

func (e *env) putMember(c journal.Coordinator, id string, data []byte) {
	e.Helper()
	given := bytes.Clone(data)
	e.must(fmt.Sprintf("put member %q", id), func() error { return c.PutMember(e.ctx, id, given) })
	if !bytes.Equal(given, data) {
		e.Fatalf("PutMember has changed the data that it was given")
	}
	clear(given)
}

func (e *env) wantMembers(c journal.Coordinator, want map[string][]byte) {
	e.Helper()
	got, err := c.Members(e.ctx)
	if err != nil {
		e.Fatalf("members: %v", err)
	}
	if !maps.EqualFunc(got, want, bytes.Equal) {
		e.Fatalf("members are %q with other data than was put, or others than %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func membersTable(e *env) {
	handles := []journal.Coordinator{e.coordinator(e.j), e.coordinator(e.second())}
	want := map[string][]byte{}
	e.wantMembers(handles[0], want)
	ids := []string{"a", "b", "127.0.0.1:9650 (x)", strings.Repeat("n", journal.MaxNameBytes), "A", "%"}
	for i := range 40 {
		c, other := handles[i%2], handles[(i+1)%2]
		id := ids[e.rng.IntN(len(ids))]
		if i%5 == 4 {
			for range 2 { // one that is not there is no error
				e.must("delete member", func() error { return c.DeleteMember(e.ctx, id) })
			}
			delete(want, id)
		} else {
			want[id] = e.blob(e.rng.IntN(300))
			e.putMember(c, id, want[id])
		}
		e.wantMembers(other, want)
	}
	e.wantMembers(e.coordinator(e.second()), want)
}

func membersLimits(e *env) {
	c := e.coordinator(e.j)
	largest := e.blob(journal.MaxMemberBytes)
	e.putMember(c, "largest", largest)
	e.putMember(c, "empty", nil)
	want := map[string][]byte{"largest": largest, "empty": {}}
	e.wantMembers(c, want)
	e.refused("put of an entry above the limit", func() error {
		return c.PutMember(e.ctx, "largest", append(bytes.Clone(largest), 0))
	}, journal.ErrTooLarge)
	for _, id := range []string{"", strings.Repeat("n", journal.MaxNameBytes+1), "a\n", "ä"} {
		e.refused(fmt.Sprintf("put of member %q", id), func() error { return c.PutMember(e.ctx, id, nil) }, journal.ErrInvalid)
		e.refused(fmt.Sprintf("deletion of member %q", id), func() error { return c.DeleteMember(e.ctx, id) }, journal.ErrInvalid)
	}
	e.wantMembers(c, want)
}

func membersOwnership(e *env) {
	c := e.coordinator(e.j)
	data := e.blob(100)
	e.putMember(c, "a", data)
	for range 2 {
		got, err := c.Members(e.ctx)
		if err != nil || !bytes.Equal(got["a"], data) {
			e.Fatalf("the entry has changed with a slice of the caller (%v)", err)
		}
		clear(got["a"])
		clear(got)
		got["b"] = nil
	}
}

func membersConcurrent(e *env) {
	var wg sync.WaitGroup
	const n = 4
	last := make([][]byte, n)
	handles := []journal.Coordinator{e.coordinator(e.j), e.coordinator(e.second())}
	for i := range n {
		c, id := handles[i%2], fmt.Sprintf("member %d", i)
		wg.Go(func() {
			for beat := range 15 {
				last[i] = fmt.Appendf(nil, "beat %d of %d", beat, i)
				if err := e.settle(func() error { return c.PutMember(e.ctx, id, last[i]) }); err != nil {
					e.Errorf("put: %v", err)
					return
				}
				got, err := handles[(i+1)%2].Members(e.ctx)
				if err != nil || !bytes.Equal(got[id], last[i]) {
					e.Errorf("put %q, then read %q (%v)", last[i], got[id], err)
					return
				}
			}
		})
	}
	wg.Wait()
	want := map[string][]byte{}
	for i := range n {
		want[fmt.Sprintf("member %d", i)] = last[i]
	}
	e.wantMembers(handles[0], want)
}

func membersUnknown(e *env) {
	c := e.coordinator(e.j)
	for _, after := range []bool{false, true} {
		want := map[string][]byte{}
		e.eachLoss(after, func(what string, ctx context.Context) {
			data := e.blob(20)
			if err := e.settle(func() error { return c.PutMember(ctx, "a", data) }); err != nil {
				e.Fatalf("put with %s, repeated: %v", what, err)
			}
			want["a"] = data
			e.wantMembers(c, want)
		})
		e.eachLoss(after, func(what string, ctx context.Context) {
			if err := e.settle(func() error { return c.DeleteMember(ctx, "a") }); err != nil {
				e.Fatalf("delete with %s, repeated: %v", what, err)
			}
			e.wantMembers(c, nil)
		})
	}
}

func membersApart(e *env) {
	c := e.coordinator(e.j)
	e.putMember(c, "orders", []byte("entry"))
	e.putMember(c, "others", []byte("entry"))
	o := e.acquire(e.j, "orders")
	recs := o.append(2)
	for info, err := range e.j.Streams(e.ctx) {
		if err != nil || info.Name != "orders" {
			e.Fatalf("streams lists %+v, %v", info, err)
		}
	}
	e.must("drop", func() error { return o.s.Drop(e.ctx) })
	e.wantMembers(c, map[string][]byte{"orders": []byte("entry"), "others": []byte("entry")})
	o = e.acquire(e.j, "orders")
	e.must("delete member", func() error { return c.DeleteMember(e.ctx, "orders") })
	recs = append(recs[:0], o.append(1)...)
	o.wantStream(o.s, recs)
}

func membersClose(e *env) {
	c := e.coordinator(e.j)
	other := e.coordinator(e.second())
	e.putMember(c, "a", []byte("entry"))
	if err := e.j.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.refused("put after Close", func() error { return c.PutMember(e.ctx, "a", nil) }, journal.ErrClosed)
	e.refused("delete after Close", func() error { return c.DeleteMember(e.ctx, "a") }, journal.ErrClosed)
	e.refused("list after Close", func() error { _, err := c.Members(e.ctx); return err }, journal.ErrClosed)
	e.wantMembers(other, map[string][]byte{"a": []byte("entry")})
}
