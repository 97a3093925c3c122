package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/ceiling"
)

// listen opens the listener of a part, and returns where others find it.
func (p *Part) listen(ctx context.Context) (net.Listener, string, error) {
	var lc net.ListenConfig
	if p.Network == "unix" {
		path := filepath.Join(p.Sockets, string(p.Kind))
		l, err := lc.Listen(ctx, "unix", path)
		if err != nil {
			return nil, "", fmt.Errorf("listen: %w", err)
		}
		return l, "unix:" + path, nil
	}
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	return l, l.Addr().String(), nil
}

// bareServe is a part of kind BareServe.
func (p *running) bareServe(ctx context.Context, l net.Listener, log *ceiling.Log) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- log.Serve(ctx, l) }()
	p.watch(ctx, cancel)
	return <-served
}

// bareSend is a part of kind BareSend.
func (p *running) bareSend(ctx context.Context) error {
	network, addr := "tcp", p.Addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return fmt.Errorf("connect to the bare log: %w", err)
	}
	due := make([]atomic.Int64, p.Window) // of each message that is under way, at a rate
	answered := uint64(0)
	c := ceiling.NewClient(conn, p.Window, func(stored uint64) {
		for ; p.Rate > 0 && answered < stored; answered++ {
			if at := due[answered%uint64(p.Window)].Load(); p.measuring.Load() {
				p.answer.Record(time.Since(p.began) - time.Duration(at))
			}
		}
		p.done.Store(int64(stored))
	})
	defer c.Close()
	sending, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	go func() {
		body := newBody(p.Payload)
		steady := pace{began: p.began, rate: p.Rate}
		if p.Rate > 0 {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			exactTimers()
		}
		for n := 0; sending.Err() == nil; n++ {
			if p.Rate > 0 {
				at := steady.next()
				waitUntil(at)
				due[n%p.Window].Store(int64(at.Sub(p.began)))
			}
			if err := c.Send(body); err != nil {
				failed <- err
				end()
				return
			}
		}
		failed <- c.Flush(ctx)
	}()
	p.watch(sending, end)
	return errors.Join(<-failed)
}
