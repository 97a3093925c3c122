package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/rpc"
)

// state is how far the process has come, for those who ask at the HTTP address.
type state struct {
	mu     sync.Mutex
	phase  string // what it does before it is ready, and at its end; empty in between
	broker *broker.Broker
	server *rpc.Server
}

func (s *state) set(phase string, b *broker.Broker, srv *rpc.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.broker, s.server = phase, b, srv
}

func (s *state) get() (string, *broker.Broker, *rpc.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase, s.broker, s.server
}

// Broker implements metrics.Source.
func (s *state) Broker(ctx context.Context) (broker.Metrics, bool) {
	_, b, _ := s.get()
	if b == nil {
		return broker.Metrics{}, false
	}
	return b.Metrics(ctx), true
}

// Server implements metrics.Source.
func (s *state) Server() (rpc.Metrics, bool) {
	_, _, srv := s.get()
	if srv == nil {
		return rpc.Metrics{}, false
	}
	return srv.Metrics(), true
}

// ready tells whether everything that is stored can be used, and in words how it stands. A queue that cannot be opened
// does not make the broker unready: the others are served.
func (s *state) ready() (bool, string) {
	phase, b, _ := s.get()
	if phase != "" {
		return false, phase
	}
	ready, opening, failed := b.Ready()
	text := fmt.Sprintf("%d queues ready, %d opening, %d failed", ready, opening, failed)
	return opening == 0, text
}

// handler serves health and metrics, and profiles if that is asked for.
func (s *state) handler(metrics http.Handler, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code := http.StatusServiceUnavailable
		ok, text := s.ready()
		if ok {
			code = http.StatusOK
		}
		answer(w, code, text)
	})
	mux.Handle("GET /metrics", metrics)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // who asked may be gone
}
