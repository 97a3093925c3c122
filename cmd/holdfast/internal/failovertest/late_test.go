package failovertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// late is the journal of a broker one of whose appends arrives when the test says so, whether the broker still waits for it or not.
type late struct {
	journal.Journal
	outcome chan error // of that append
	reached chan struct{}
	release chan struct{}

	mu    sync.Mutex
	armed bool
	held  *lateStream // where an append is held up: none is made there but that
}

func newLate(j journal.Journal) *late {
	return &late{Journal: j, outcome: make(chan error, 1), reached: make(chan struct{}), release: make(chan struct{})}
}

func (l *late) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	s, err := l.Journal.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return &lateStream{s, l}, nil
}

type lateStream struct {
	journal.Stream
	l *late
}

func (s *lateStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	s.l.mu.Lock()
	if s.l.armed && s.l.held == nil {
		s.l.held = s
		mine := *rec
		mine.Meta, mine.Body = bytes.Clone(rec.Meta), nil
		for _, b := range rec.Body {
			mine.Body = append(mine.Body, bytes.Clone(b))
		}
		go s.arrive(after, &mine)
		close(s.l.reached)
	}
	held := s.l.held == s
	s.l.mu.Unlock()
	if !held {
		return s.Stream.Append(ctx, after, rec)
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err())
}

// arrive makes the append that is held up.
func (s *lateStream) arrive(after uint64, rec *journal.Record) {
	<-s.l.release
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	err := s.Stream.Append(ctx, after, rec)
	for errors.Is(err, journal.ErrUnknown) && ctx.Err() == nil {
		err = s.Stream.Append(ctx, after, rec)
	}
	s.l.outcome <- errors.Join(err, s.Stream.Release())
}

// Release leaves the hold as it is while an append is on its way.
func (s *lateStream) Release() error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.held == s {
		return nil
	}
	return s.Stream.Release()
}

// node opens a broker of several in this process, on a journal of its own.
func node(t *testing.T, url, name string, o cluster.Options, through func(journal.Journal) (journal.Journal, journal.Coordinator)) *cluster.Node {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	j := openJournal(t, url)
	inner, coord := through(j)
	o.Address, o.Broker.Logger = name, quiet
	n, err := cluster.Open(t.Context(), inner, coord, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Log(err) // another one may have fenced it
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func plain(j journal.Journal) (journal.Journal, journal.Coordinator) {
	return j, j.(journal.Coordinator)
}

// beside is the link between two nodes of this process.
type beside struct{ *broker.Broker }

func (beside) Close() {}

// G5, §4: an append of an owner that arrives after its successor has taken the queue, has stored and handed out what was sent there, and has discarded it again, is
// refused. The message in it was not lost by that: its sender sent it to the successor, where it is stored once (G1, G3, G10).
func TestLateAppend(t *testing.T) { each(t, lateAppend, onMongoDB.name) }

func lateAppend(t *testing.T, on store) {
	url := on.journal(t)
	names := []string{"a", "b"}
	slices.SortFunc(names, func(x, y string) int { // the second one is the successor
		return map[bool]int{true: -1, false: 1}[placement.Score(x, "run") < placement.Score(y, "run")]
	})
	var mu sync.Mutex
	nodes := map[string]*cluster.Node{}
	o := cluster.Options{
		Broker: broker.Options{Persistent: persistent.Options{SnapshotEvents: 50}},
		Dial: func(_ context.Context, p cluster.Peer) (cluster.PeerLink, error) {
			mu.Lock()
			defer mu.Unlock()
			return beside{nodes[p.Address].Broker()}, nil
		},
	}
	open := func(name string, through func(journal.Journal) (journal.Journal, journal.Coordinator)) *cluster.Node {
		n := node(t, url, name, o, through)
		mu.Lock()
		defer mu.Unlock()
		nodes[name] = n
		return n
	}
	var l *late
	old := open(names[0], func(j journal.Journal) (journal.Journal, journal.Coordinator) {
		l = newLate(j)
		return l, j.(journal.Coordinator)
	})
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	q := old.Queue("run")
	if err := q.Create(ctx, queue.Config{}); err != nil {
		t.Fatal(err)
	}
	s, err := q.NewSender(holdfast.SenderOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	handle := func(n int) {
		t.Helper()
		for _, body := range receive(ctx, t, q, n) {
			got[body]++
		}
	}
	for i := range 20 {
		if _, err := s.Send(ctx, holdfast.Message{Body: fmt.Appendf(nil, "before %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	handle(20)

	l.mu.Lock()
	l.armed = true
	l.mu.Unlock()
	outcome := make(chan error, 1)
	if err := s.SendAsync(ctx, holdfast.Message{Body: []byte("late")}, func(_ holdfast.ID, err error) { outcome <- err }); err != nil {
		t.Fatal(err)
	}
	<-l.reached
	q = open(names[1], plain).Queue("run")
	if err := <-outcome; err != nil {
		t.Errorf("the message that was held up: %v", err)
	}
	for i := range 200 {
		if _, err := q.Send(ctx, holdfast.Message{Body: fmt.Appendf(nil, "after %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	handle(201)
	close(l.release)
	if err := <-l.outcome; !errors.Is(err, journal.ErrFenced) {
		t.Errorf("the late append ended with %v, want that it was fenced", err)
	}
	for i := range 20 {
		if _, err := q.Send(ctx, holdfast.Message{Body: fmt.Appendf(nil, "then %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	handle(20)
	info, err := q.Describe(ctx)
	if err != nil || info.Stats.Depth != 0 || info.Owner != names[1] {
		t.Errorf("in the end the queue is described as %+v, %v", info, err)
	}
	if len(got) != 241 {
		t.Errorf("%d different messages were received, want 241", len(got))
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, fault := range verify(ctx, t, url) {
		t.Error(fault)
	}
}

// receive receives n messages and acknowledges them.
func receive(ctx context.Context, t *testing.T, q *holdfast.Queue, n int) (bodies []string) {
	t.Helper()
	r, err := q.NewReceiver(holdfast.ReceiverOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for len(bodies) < n {
		ds, err := r.Receive(ctx, n-len(bodies))
		if err == nil {
			err = r.Ack(ctx, ds...)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			bodies = append(bodies, string(d.Body))
		}
	}
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	return bodies
}

// verify reads the whole stream, and returns what is wrong with it.
func verify(ctx context.Context, t *testing.T, url string) []error {
	t.Helper()
	j, err := journals.Open(ctx, url, journals.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // it was only read
	v, err := broker.Verify(ctx, j, broker.StreamName("run"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v.Faults
}
