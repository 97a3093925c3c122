package ceiling_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/ceiling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestRaw(t *testing.T) {
	dir := t.TempDir()
	for _, over := range []bool{false, true} {
		h, err := ceiling.Raw(t.Context(), dir, over, 0, 20*time.Millisecond)
		if err != nil || h.Count() == 0 || h.Percentile(50) <= 0 {
			t.Errorf("%v: %v", over, err)
		}
		empty(t, dir)
	}
	// At a rate, there are no more than that, one a hundredth of a second.
	if h, err := ceiling.Raw(t.Context(), dir, false, 100, 50*time.Millisecond); err != nil || h.Count() == 0 || h.Count() > 6 {
		t.Errorf("at 100 a second: %d in 50 ms, %v", h.Count(), err)
	}
	empty(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := ceiling.Raw(ctx, dir, false, 0, time.Hour); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, err := ceiling.Raw(t.Context(), dir+"/none", false, 0, time.Hour); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Two clients send to one log; each is told of all of its own messages.
func TestBare(t *testing.T) {
	dir := t.TempDir()
	log, err := ceiling.NewLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- log.Serve(ctx, l) }()
	const n = 2000
	var clients []*ceiling.Client
	for range 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, ceiling.NewClient(conn, 100, nil))
	}
	for i := range n {
		for _, c := range clients {
			if err := c.Send(make([]byte, i%300)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range clients {
		if err := c.Flush(t.Context()); err != nil || c.Acked() != n {
			t.Errorf("%d of %d are stored: %v", c.Acked(), n, err)
		}
		c.Close()
		if err := c.Send(nil); err == nil {
			t.Error("a closed client sends")
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	empty(t, dir)
}

// A client whose connection breaks says so, and does not wait for ever.
func TestBroken(t *testing.T) {
	here, there := net.Pipe()
	c := ceiling.NewClient(here, 1, nil)
	there.Close()
	for range 3 {
		if err := c.Send([]byte("x")); err != nil {
			break
		}
	}
	if err := c.Flush(t.Context()); err == nil {
		t.Error("all is stored, and nobody is there")
	}
	c.Close()
}
