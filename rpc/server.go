package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/status"
)

// Server serves a link over the network. All methods may be called concurrently.
type Server struct {
	link      holdfast.Link
	o         Options
	log       *slog.Logger
	policy    atomic.Pointer[access.Policy]
	consumers sync.Map // of delivery.Link[[]byte], by name
	http      *http.Server
	limit     limiter
	origins   *http.CrossOriginProtection

	end context.CancelCauseFunc // of the context that all requests run under

	mu      sync.Mutex
	conns   map[*dataConn]struct{}
	leaving bool // no new data connections or streams
	changed chan struct{}

	warnings                               warnings
	accepted, unauthorized, broken, killed atomic.Uint64
}

// Metrics are the numbers of a server.
type Metrics struct {
	Connections     int    // data connections that are open
	Streams         int    // that are open on them
	Accepted        uint64 // data connections ever made
	Unauthorized    uint64 // requests refused for who made them
	ProtocolErrors  uint64 // data connections ended because the client broke the protocol
	DeadConnections uint64 // data connections ended because the client was gone or did not read
}

// NewServer makes a server of a link. It serves once Serve is called. A nil link makes one without queues, for
// consumers of reliable delivery alone (see AddConsumer).
func NewServer(link holdfast.Link, o Options) (*Server, error) {
	if link == nil {
		link = noQueues{}
	}
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	s := &Server{
		link: link, o: o, log: o.Logger, origins: http.NewCrossOriginProtection(),
		conns: make(map[*dataConn]struct{}), changed: make(chan struct{}),
	}
	s.policy.Store(o.Policy)
	s.limit = limiter{max: o.MaxConns, full: func() {
		s.warnings.say(s.log, "connection refused: too many are open", "limit", o.MaxConns)
	}}
	life, end := context.WithCancelCause(context.Background())
	s.end = end
	s.http = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         o.TLS,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: o.HandshakeTimeout,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return life },
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

// SetPolicy replaces the policy. Connections that were made before keep the rights that they had.
func (s *Server) SetPolicy(p *access.Policy) error {
	if p == nil && s.policy.Load() != nil {
		return errors.New("set policy: there was one, and without it everyone could do everything")
	}
	s.policy.Store(p)
	return nil
}

// Serve serves a listener until the server is shut down or closed, and then returns holdfast.ErrClosed. It may be
// called for several listeners. A listener that others than this machine can reach is refused without TLS and a
// policy, unless Options.Insecure allows it.
func (s *Server) Serve(l net.Listener) error {
	_, onUnix := l.Addr().(*net.UnixAddr)
	if err := MayServe(l.Addr(), s.o.Insecure || s.o.TLS != nil && s.policy.Load() != nil); err != nil {
		l.Close()
		return err
	}
	counted := limited{l, &s.limit}
	var err error
	if s.o.TLS != nil && !onUnix {
		err = s.http.ServeTLS(counted, "", "")
	} else {
		err = s.http.Serve(counted)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = holdfast.ErrClosed
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}

// MayServe returns why a server does not serve on an address that others than this machine can reach, unless it is secure: it has TLS and
// a policy, or does without them by Options.Insecure. It returns nil for other addresses.
func MayServe(a net.Addr, secure bool) error {
	if secure || local(a) {
		return nil
	}
	return fmt.Errorf("serve on %s: refused: others than this machine can reach it, and it has not both TLS and an access policy (allow it with the insecure option)", a)
}

// Metrics returns the server's numbers.
func (s *Server) Metrics() Metrics {
	m := Metrics{
		Accepted: s.accepted.Load(), Unauthorized: s.unauthorized.Load(),
		ProtocolErrors: s.broken.Load(), DeadConnections: s.killed.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Connections = len(s.conns)
	for c := range s.conns {
		m.Streams += c.streamCount()
	}
	return m
}

// add registers a data connection, unless the server is leaving.
func (s *Server) add(c *dataConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *dataConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

var errLeaving = fmt.Errorf("broker is stopping: %w", holdfast.ErrUnavailable)

// Shutdown ends the server gracefully: listeners are closed, clients are told to go elsewhere, administrative calls under way are
// finished, and data connections end when their last stream has (the broker ends them when it is closed; those to
// consumers end at once, see AddConsumer). When ctx ends first, what is left is ended as by Close, and the context's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.leaving = true
	for c := range s.conns {
		c.leave(status.FromError(errLeaving))
	}
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	for err == nil {
		s.mu.Lock()
		n, changed := len(s.conns), s.changed
		s.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	s.Close()
	if err != nil {
		return fmt.Errorf("shut down server: %w", err)
	}
	return nil
}

// Close ends the server at once: listeners, calls and data connections, whose clients are told. It returns when all
// data connections have ended, after some seconds at most.
func (s *Server) Close() {
	s.mu.Lock()
	s.leaving = true
	for c := range s.conns {
		c.t.Goodbye(errLeaving, status.FromError(errLeaving))
	}
	s.mu.Unlock()
	s.end(errLeaving)
	// An error of closing a listener is of no use to anybody.
	_ = s.http.Close()
	for {
		s.mu.Lock()
		n, changed := len(s.conns), s.changed
		s.mu.Unlock()
		if n == 0 {
			return
		}
		<-changed
	}
}

// warnings limits what misbehaving clients can write into the log, to a line a second.
type warnings struct {
	mu   sync.Mutex
	last time.Time
	held int
}

func (w *warnings) say(log *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now := time.Now()
	if now.Sub(w.last) < time.Second {
		w.held++
		w.mu.Unlock()
		return
	}
	held := w.held
	w.last, w.held = now, 0
	w.mu.Unlock()
	if held > 0 {
		args = append(args, "held_back", held)
	}
	log.Warn(text, args...)
}
