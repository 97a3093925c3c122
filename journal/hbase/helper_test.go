package hbase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// writer is an owner and where its stream ends.
type writer struct {
	testing.TB
	s  journal.Stream
	at journal.Info
}

func acquire(t testing.TB, j journal.Journal, name string) *writer {
	t.Helper()
	s, err := j.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{t, s, s.Acquired()}
}

// nextRecord makes the record that comes behind at.
func nextRecord(at journal.Info, epoch uint64, meta, body []byte) *journal.Record {
	r := &journal.Record{
		Header: journal.Header{UID: at.UID, Epoch: epoch, First: at.End + 1, Count: 1, Kind: journal.KindEvents, Time: at.EndTime + 1},
		Meta:   meta,
	}
	if body != nil {
		r.Body = [][]byte{body}
	}
	if err := r.Seal(at.EndCRC); err != nil {
		panic(err) // it is small
	}
	return r
}

func (w *writer) next(body []byte) *journal.Record {
	return nextRecord(w.at, w.at.Epoch, fmt.Appendf(nil, "meta %d", w.at.End+1), body)
}

func (w *writer) stored(r *journal.Record) {
	w.at.End, w.at.EndCRC, w.at.EndTime = r.Last(), r.CRC, r.Time
}

// add appends a record, which must succeed.
func (w *writer) add(body []byte) *journal.Record {
	w.Helper()
	r := w.next(body)
	if err := settle(w.Context(), func() error { return w.s.Append(w.Context(), w.at.End, r) }); err != nil {
		w.Fatal(err)
	}
	w.stored(r)
	return r
}

// settle repeats f until its outcome is known.
func settle(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || isRefusal(err) || ctx.Err() != nil {
			return err
		}
		pause(ctx, n)
	}
}

// metas reads the headers of a stream.
func metas(ctx context.Context, r journal.Reader) ([]journal.Header, error) {
	var hs []journal.Header
	for rec, err := range r.ReadMeta(ctx, 1, 1<<62) {
		if err != nil {
			return hs, err
		}
		hs = append(hs, rec.Header)
	}
	return hs, nil
}

// wantHistory requires that the stream consists of records that follow one another, with those acknowledged among them.
func wantHistory(t testing.TB, r journal.Reader, acked []journal.Header) {
	t.Helper()
	var hs []journal.Header
	if err := settle(t.Context(), func() (err error) { hs, err = metas(t.Context(), r); return err }); err != nil {
		t.Fatalf("read the history: %v", err)
	}
	var chain journal.Chain
	stored := map[uint64]journal.Header{}
	for i := range hs {
		if err := chain.Next(&hs[i]); err != nil {
			t.Fatalf("the history is broken: %v", err)
		}
		stored[hs[i].First] = hs[i]
	}
	for _, h := range acked {
		if stored[h.First] != h {
			t.Errorf("the record acknowledged at seq %d to epoch %d is not in its place, but %+v", h.First, h.Epoch, stored[h.First])
		}
	}
}

// cutter is a proxy before a gateway that loses requests and answers.
type cutter struct {
	net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	rng  *rand.Rand
	most int            // of how many requests one is lost at least, and of how many answers
	left map[string]int // until the next one
	seen map[string]int
	cuts map[string]int // how many were lost
	all  map[net.Conn]struct{}
}

// newCutter returns a proxy that loses one of most requests at least, and of most answers; on average twice as many.
func newCutter(t testing.TB, to string, most int, seed uint64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, to: to, rng: rand.New(rand.NewPCG(seed, 1)), most: most, all: map[net.Conn]struct{}{}}
	c.left, c.seen, c.cuts = map[string]int{}, map[string]int{}, map[string]int{}
	for _, what := range []string{"request", "answer"} {
		c.left[what] = 1 + c.rng.IntN(most)
	}
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.mu.Lock()
		for conn := range c.all {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) accept() {
	for {
		in, err := c.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		c.mu.Lock()
		c.all[in], c.all[out] = struct{}{}, struct{}{}
		c.mu.Unlock()
		end := func() { _ = in.Close(); _ = out.Close() }
		c.wg.Go(func() { defer end(); c.copy(out, in, "request") })
		c.wg.Go(func() { defer end(); c.copy(in, out, "answer") })
	}
}

func (c *cutter) copy(to io.Writer, from io.Reader, what string) {
	b := make([]byte, 1<<20)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.seen[what]++
		c.left[what]--
		cut := c.left[what] == 0
		if cut {
			c.cuts[what]++
			c.left[what] = 1 + c.rng.IntN(c.most)
		}
		c.mu.Unlock()
		if cut {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// within requires that f returns before d is over.
func within(t testing.TB, what string, d time.Duration, f func(ctx context.Context) error) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	if err := f(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s has not happened within %v: %v", what, d, err)
		}
		t.Fatalf("%s: %v", what, err)
	}
	return time.Since(start)
}
