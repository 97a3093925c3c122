package cassandra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// watch verifies the settings of every node: of all that answer when the journal is opened, and of the others when they
// come up. Its methods may be called concurrently.
type watch struct {
	o       *Options
	session *gocql.Session
	wake    chan struct{}

	mu       sync.Mutex
	verified map[string]bool // by host id
	weak     error           // of a node that promises too little
}

func newWatch(o *Options) *watch {
	return &watch{o: o, wake: make(chan struct{}, 1), verified: map[string]bool{}}
}

// The client tells about nodes while it holds locks of its own: these only leave a note.

// OnHostUp notes that a node has come up, perhaps with other settings.
func (w *watch) OnHostUp(e gocql.HostUpEvent) { w.changed(e.Host) }

// OnNewHost notes that there is another node.
func (w *watch) OnNewHost(e gocql.NewHostEvent) { w.changed(e.Host) }

// OnHostDown notes that a node has gone: a node that is down stores nothing, and its settings are no matter.
func (w *watch) OnHostDown(e gocql.HostDownEvent) { w.changed(e.Host) }

// OnRemovedHost notes the same.
func (w *watch) OnRemovedHost(e gocql.RemovedHostEvent) { w.changed(e.Host) }

func (w *watch) changed(h *gocql.HostInfo) {
	w.mu.Lock()
	delete(w.verified, h.HostID())
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// err returns why nothing may be stored, or nil.
func (w *watch) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.weak
}

// run verifies nodes until ctx ends.
func (w *watch) run(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-again.C:
		}
		found, err := w.verify(ctx)
		w.mu.Lock()
		was := w.weak
		if err != nil || len(found.silent) == 0 {
			w.weak = err
		}
		w.mu.Unlock()
		if err != nil && was == nil {
			w.o.Logger.Error("cassandra journal: a node came up with weaker settings; nothing is stored until that is changed", "error", err)
		}
		if len(found.silent) > 0 || err != nil {
			again.Reset(5 * time.Second) // a node that comes up may not answer yet
		}
	}
}

// found is what the nodes say.
type found struct {
	answers      int
	limit        int64    // the least of the sizes of statements that they take
	down, silent []string // nodes that are down; those that are not, and do not answer
}

// verify asks the nodes that were not verified yet. Its error, for a node whose settings are refused, matches
// journal.ErrWeak.
func (w *watch) verify(ctx context.Context) (f found, err error) {
	f.limit = 1 << 40
	for _, h := range w.session.GetHosts() {
		w.mu.Lock()
		done := w.verified[h.HostID()]
		w.mu.Unlock()
		if done {
			continue
		}
		name := h.ConnectAddressAndPort()
		if !h.IsUp() {
			f.down = append(f.down, name)
			continue
		}
		set, readErr := nodeSettings(ctx, w.session, h.HostID())
		var denied *gocql.RequestErrUnauthorized
		switch {
		case errors.As(readErr, &denied) && w.o.AcceptWeak:
		case errors.As(readErr, &denied):
			return f, fmt.Errorf("the role %q may not read commitlog_sync of the nodes; GRANT SELECT ON KEYSPACE system_views TO it, or declare by accept-weak=true that the mode is no matter: %w, %w",
				w.o.Username, journal.ErrWeak, readErr)
		case readErr != nil:
			f.silent = append(f.silent, name)
			continue
		default:
			if err := w.o.checkSync(name, set["commitlog_sync"]); err != nil {
				return f, err
			}
			f.limit = min(f.limit, statementLimit(set))
		}
		f.answers++
		w.mu.Lock()
		w.verified[h.HostID()] = true
		w.mu.Unlock()
	}
	return f, nil
}

// nodeSettings reads settings of one node: the table is each node's own.
func nodeSettings(ctx context.Context, s *gocql.Session, hostID string) (map[string]string, error) {
	set := map[string]string{}
	it := s.Query("SELECT name, value FROM system_views.settings").Consistency(gocql.One).SetHostID(hostID).IterContext(ctx)
	var name string
	var value *string
	for it.Scan(&name, &value) {
		if value != nil {
			set[name] = *value
		}
	}
	if err := it.Close(); err != nil {
		return nil, err
	}
	return set, nil
}

func (o *Options) checkSync(node, mode string) error {
	switch {
	case mode == "batch" || mode == "group" || o.AcceptWeak:
		return nil
	case mode == "periodic":
		return fmt.Errorf("node %s has commitlog_sync: periodic, which answers before the commit log is synced; set it to batch or group in cassandra.yaml of every node, or declare by accept-weak=true that a power cut may lose what was acknowledged: %w",
			node, journal.ErrWeak)
	default:
		return fmt.Errorf("node %s has commitlog_sync: %q, which this driver does not know: %w", node, mode, journal.ErrWeak)
	}
}

// statementLimit returns how large a statement a node takes, by its settings.
func statementLimit(set map[string]string) int64 {
	limit := int64(16 << 20)
	if n, ok := parseSize(set["commitlog_segment_size"]); ok && n > 0 {
		limit = n / 2
	}
	for _, name := range []string{"max_mutation_size", "native_transport_max_frame_size", "native_transport_max_message_size", "native_transport_max_request_data_in_flight_per_ip"} {
		if n, ok := parseSize(strings.TrimSpace(set[name])); ok && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}
