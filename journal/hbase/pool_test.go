package hbase

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// fakeConn is a connection that can be told apart.
type fakeConn struct {
	conn
	closed chan struct{}
}

// fakeConns are the connections that were made. Several calls may make one at once.
type fakeConns struct {
	mu  sync.Mutex
	all []*fakeConn
}

func (f *fakeConns) add(c *fakeConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, c)
}

// made returns those that were made so far.
func (f *fakeConns) made() []*fakeConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// fakePool is a pool whose connections are counted.
func fakePool(gateways ...string) (*pool, *fakeConns, map[string]error) {
	all := &fakeConns{}
	down := map[string]error{}
	o := Options{Gateways: gateways, Connections: 2, Timeout: 5 * time.Second}
	p := newPool(&o, func(_ context.Context, address string) (*conn, error) {
		if err := down[address]; err != nil {
			return nil, err
		}
		c := &fakeConn{closed: make(chan struct{})}
		c.cut = sync.OnceFunc(func() { close(c.closed) }) // may be called beside close
		c.close = c.cut
		all.add(c)
		return &c.conn, nil
	})
	return p, all, down
}

func (c *fakeConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func nothing(context.Context, *thrift2.THBaseServiceClient) error { return nil }

// A connection is used again after a success, never after an error, and not when it has rested for long.
func TestPoolReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, all, _ := fakePool("a")
		defer p.close()
		call := func(err error) {
			t.Helper()
			got := p.do(t.Context(), func(context.Context, *thrift2.THBaseServiceClient) error { return err })
			if !errors.Is(got, err) {
				t.Fatalf("got %v, want %v", got, err)
			}
		}
		want := func(made int) {
			t.Helper()
			if len(all.made()) != made {
				t.Fatalf("%d connections were made, want %d", len(all.made()), made)
			}
			for i, c := range all.made() {
				if c.isClosed() != (i < made-1) {
					t.Fatalf("connection %d of %d: closed %v", i+1, made, c.isClosed())
				}
			}
		}
		call(nil)
		call(nil)
		want(1)
		bad := errors.New("out of order")
		call(bad)
		if !all.made()[0].isClosed() {
			t.Fatal("a connection is open after an error")
		}
		call(nil)
		want(2)
		time.Sleep(maxIdle + time.Second)
		call(nil)
		want(3)
	})
}

// G9: a call ends with its context, with the timeout, and with Close, also while it waits for a connection.
func TestPoolEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, all, _ := fakePool("a")
		hang := func(ctx context.Context) error {
			return p.do(ctx, func(context.Context, *thrift2.THBaseServiceClient) error {
				<-all.made()[len(all.made())-1].closed
				return errors.New("use of closed connection")
			})
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := hang(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		var late *timeoutError
		if err := hang(t.Context()); !errors.As(err, &late) || time.Since(start) != 6*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		ends := make(chan error, 3)
		for range 3 { // two connections, and one that waits
			go func() {
				ends <- p.do(t.Context(), func(ctx context.Context, _ *thrift2.THBaseServiceClient) error {
					<-ctx.Done()
					return ctx.Err()
				})
			}()
		}
		synctest.Wait()
		p.close()
		p.close()
		for range 3 {
			if err := <-ends; !errors.Is(err, journal.ErrClosed) {
				t.Errorf("a call that was under way at Close: %v", err)
			}
		}
		if err := p.do(t.Context(), nothing); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
		for i, c := range all.made() {
			if !c.isClosed() {
				t.Errorf("connection %d is open after Close", i)
			}
		}
	})
}

// A gateway that is lost is replaced by the next one, and none of them is an error that names all.
func TestPoolTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, all, down := fakePool("a", "b")
		defer p.close()
		down["a"] = errors.New("refused by a")
		if err := p.do(t.Context(), nothing); err != nil || len(all.made()) != 1 {
			t.Fatal(err)
		}
		down["b"] = errors.New("refused by b")
		failed := errors.New("lost")
		if err := p.do(t.Context(), func(context.Context, *thrift2.THBaseServiceClient) error { return failed }); !errors.Is(err, failed) {
			t.Fatal(err)
		}
		err := p.do(t.Context(), nothing)
		var away *unreachableError
		if !errors.As(err, &away) || !errors.Is(err, down["a"]) || !errors.Is(err, down["b"]) {
			t.Fatalf("with all gateways away: %v", err)
		}
		delete(down, "a")
		if err := p.do(t.Context(), nothing); err != nil {
			t.Fatal(err)
		}
	})
}
