package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfastmq/holdfast/message"
)

// unixPrefix marks an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// Listen opens a listener on HOST:PORT, or on unix:PATH, which only this user may connect to. A socket file that nobody
// listens on any more is replaced.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		return l, nil
	}
	if path == "" {
		return nil, fmt.Errorf("listen on %s: %w", address, &message.FieldError{Field: "address", Fault: "has no path"})
	}
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: remove the socket that nobody listens on: %w", address, err)
		}
		l, err = lc.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// abandoned tells that a path is a socket on which nobody listens.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// local reports whether only processes of this machine can reach an address.
func local(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// limiter counts the open connections of all listeners of a server.
type limiter struct {
	mu   sync.Mutex
	open int
	max  int
	full func()
}

func (l *limiter) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max {
		return false
	}
	l.open++
	return true
}

func (l *limiter) put() {
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
}

// limited is a listener whose connections count.
type limited struct {
	net.Listener
	l *limiter
}

// Accept closes connections that are too many, so that those that are open go on.
func (l limited) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.l.take() {
			return &countedConn{Conn: nc, put: sync.OnceFunc(l.l.put)}, nil
		}
		nc.Close()
		l.l.full()
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	put func()
}

func (c *countedConn) Close() error {
	defer c.put()
	return c.Conn.Close()
}
