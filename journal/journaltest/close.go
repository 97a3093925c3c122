package journaltest

import (
	"errors"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

var closeRules = []Rule{
	{Name: "ends-all", Promise: "Close ends all use of the journal: every later call is ErrClosed. It is idempotent.", check: closeEndsAll},
	{Name: "under-way", Promise: "Calls under way when the journal is closed end, with ErrClosed or their result; Close does not hang.", check: closeUnderWay},
	{Name: "not-fenced", Promise: "Close does not fence: the streams can be acquired again.", needs: needs{persistent: true}, check: closeNotFenced},
}

func closeEndsAll(e *env) {
	o := e.acquire(e.j, "orders")
	o.append(3)
	next := o.random()
	r := e.reader(e.j, "orders")
	metas := o.s.ReadMeta(e.ctx, 1, all)
	for range 3 {
		if err := e.j.Close(); err != nil {
			e.Fatalf("close: %v", err)
		}
	}
	e.wantClosed(o, next)
	e.wantClosedReads(r)
	var err error
	for _, err = range metas {
	}
	e.refused("a sequence of before Close", func() error { return err }, journal.ErrClosed)
	_, err = e.j.Acquire(e.ctx, "orders")
	e.refused("Acquire after Close", func() error { return err }, journal.ErrClosed)
	_, err = e.j.Open(e.ctx, "orders")
	e.refused("Open after Close", func() error { return err }, journal.ErrClosed)
	err = nil
	for _, err = range e.j.Streams(e.ctx) {
	}
	e.refused("Streams after Close", func() error { return err }, journal.ErrClosed)
	if err := o.s.Release(); err != nil {
		e.Fatalf("release after Close: %v", err)
	}
	if at := o.s.Acquired(); at.Name != "orders" {
		e.Fatalf("Acquired after Close: %+v", at)
	}
}

func closeUnderWay(e *env) {
	const writers = 4
	var wg sync.WaitGroup
	acked := make([][]*journal.Record, writers)
	names := []string{"a", "b", "c", "d"}
	started := make(chan struct{}, writers)
	// Before any of them begins: a stream that is not acquired ends the rule.
	var owners []*owner
	for i := range writers {
		o := e.acquire(e.j, names[i])
		o.env = e.worker(uint64(i))
		owners = append(owners, o)
	}
	for i, o := range owners {
		wg.Go(func() {
			for n := 0; ; n++ {
				r := o.random()
				err := o.try(r)
				switch {
				case err == nil:
					acked[i] = append(acked[i], r)
				case errors.Is(err, journal.ErrClosed):
					return
				default:
					e.Errorf("append while the journal is closed: %v, want nil or ErrClosed", err)
					return
				}
				for _, err := range o.s.ReadMeta(e.ctx, r.First, all) {
					if err != nil && !errors.Is(err, journal.ErrClosed) {
						e.Errorf("read while the journal is closed: %v, want ErrClosed", err)
					}
				}
				if n == 3 {
					started <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-started
	}
	e.within("Close with calls under way", e.cfg.Timeout/2, func() {
		if err := e.j.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	})
	e.within("a call that was under way when the journal was closed", e.cfg.Timeout/2, wg.Wait)
	if !e.cfg.Persistent {
		return
	}
	e.j = e.open()
	for i, name := range names {
		got := e.mustMetas(e.reader(e.j, name), 1, all)
		// One append may have been stored, and told as closed.
		if len(got) < len(acked[i]) || len(got) > len(acked[i])+1 {
			e.Fatalf("%d records after reopening, %d were acknowledged before", len(got), len(acked[i]))
		}
		e.wantMetas(e.reader(e.j, name), 1, got[len(acked[i])-1].Last(), acked[i])
	}
}

func closeNotFenced(e *env) {
	var recs []*journal.Record
	for range 4 {
		o := e.acquire(e.j, "orders")
		recs = append(recs, o.append(2)...)
		o.wantStream(o.s, recs)
		before := e.info(o.s)
		e.reopen()
		if after := e.info(e.reader(e.j, "orders")); after != before {
			e.Fatalf("closing and opening has changed the info from\n%+v to\n%+v", before, after)
		}
	}
}
