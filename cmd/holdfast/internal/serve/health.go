package serve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/rpc"
)

// state is how far the process has come, for those who ask at the HTTP address.
type state struct {
	mu     sync.Mutex
	phase  string // what it does before it is ready, and at its end; empty in between
	broker *broker.Broker
	server *rpc.Server
	node   *cluster.Node // nil where the journal is not shared
}

// share notes that the broker is one of several.
func (s *state) share(n *cluster.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = n
}

// shared returns the node that the broker is in, nil if it is alone.
func (s *state) shared() *cluster.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// Cluster implements metrics.Source.
func (s *state) Cluster() (cluster.Metrics, bool) {
	n := s.shared()
	if n == nil {
		return cluster.Metrics{}, false
	}
	return n.Metrics(), true
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
// does not make the broker unready: the others are served. Nor do messages that cannot be read, whose queues are named.
func (s *state) ready() (bool, string) {
	phase, b, _ := s.get()
	if phase != "" {
		return false, phase
	}
	n := s.shared()
	count := b.Ready
	if n != nil {
		count = n.Ready
	}
	ready, opening, failed := count()
	text := fmt.Sprintf("%d queues ready, %d opening, %d failed", ready, opening, failed)
	if n != nil {
		text += fmt.Sprintf("; %d brokers share the journal", n.Metrics().Members["live"])
	}
	return opening == 0, text
}

// maxNamed bounds the queues that are named.
const maxNamed = 20

// damage names queues with messages that cannot be read. They are ready all the same: everything else in them is handed out.
func damage(queues map[string]uint64) string {
	var b strings.Builder
	names := slices.Sorted(maps.Keys(queues))
	for i, name := range names {
		if i == maxNamed {
			fmt.Fprintf(&b, "\nand %d more queues with damaged messages", len(names)-i)
			break
		}
		fmt.Fprintf(&b, "\nqueue %q: %d damaged messages", name, queues[name])
	}
	return b.String()
}

// queuePatience bounds how long the owner of a queue may take to answer.
const queuePatience = 2 * time.Second

// readyQueue tells whether a queue can be used, at whichever broker, and where.
func (s *state) readyQueue(ctx context.Context, name string) (bool, string) {
	phase, b, _ := s.get()
	if phase != "" {
		return false, phase
	}
	ctx, cancel := context.WithTimeout(ctx, queuePatience)
	defer cancel()
	admin := b.Admin()
	if n := s.shared(); n != nil {
		admin = n.Admin()
	}
	info, err := admin.Describe(ctx, name)
	switch {
	case err != nil:
		return false, err.Error()
	case !info.Ready:
		return false, info.Error
	}
	text := fmt.Sprintf("ready at %s, epoch %d", info.Owner, info.Epoch)
	if n := info.Stats.Damaged; n > 0 {
		text += damage(map[string]uint64{name: n})
	}
	return true, text
}

// handler serves health and metrics, and profiles if that is asked for.
func (s *state) handler(metrics http.Handler, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusServiceUnavailable
		var ok bool
		var text string
		if name := r.URL.Query().Get("queue"); name != "" {
			ok, text = s.readyQueue(r.Context(), name)
		} else {
			if ok, text = s.ready(); ok {
				_, b, _ := s.get()
				text += damage(b.Damaged(r.Context()))
			}
		}
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
