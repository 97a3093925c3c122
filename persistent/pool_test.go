package persistent_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// openIn opens the actor of a stream.
func openIn(t *testing.T, j journal.Journal, stream string, o persistent.Options) (*actor, *shelf) {
	t.Helper()
	s := newShelf()
	a, err := persistent.Open(t.Context(), j, stream, s, codec{}, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

// §5, G6: the actors of a pool do what actors do: many at once, each by itself in order, and what they stored is there again.
func TestPool(t *testing.T) {
	const actors, events = 30, 200
	j := memory.New()
	pool := new(persistent.Pool)
	var wg sync.WaitGroup
	for i := range actors {
		wg.Go(func() {
			name := string(rune('a'+i%26)) + string(rune('a'+i/26))
			a, s := openIn(t, j, name, persistent.Options{Pool: pool})
			for n := range events {
				if err := persist(t.Context(), a, note(n)); err != nil {
					t.Error(err)
				}
			}
			if err := a.Stop(t.Context()); err != nil || s.broken != nil {
				t.Errorf("stop: %v, %v", err, s.broken)
			}
			b, s2 := openIn(t, j, name, persistent.Options{Pool: pool})
			if err := b.Stop(t.Context()); err != nil || s2.sum != events*(events-1)/2 {
				t.Errorf("recovered %d, %v", s2.sum, err)
			}
		})
	}
	wg.Wait()
}

// §5: a behavior that panics, or ends its goroutine, ends its own actor, and no other of the pool.
func TestPoolOutlivesItsBehaviors(t *testing.T) {
	j := memory.New()
	pool := new(persistent.Pool)
	good, _ := openIn(t, j, "good", persistent.Options{Pool: pool})
	for name, bad := range map[string]func(){"panic": func() { panic("no") }, "goexit": runtime.Goexit} {
		for range 3 * runtime.GOMAXPROCS(0) { // more than the pool has goroutines
			a, _ := openIn(t, j, name, persistent.Options{Pool: pool})
			if err := a.Push(command{"bad", func(*persistent.Context[event], *shelf) { bad() }}); err != nil {
				t.Fatal(err)
			}
			<-a.Done()
			var p *persistent.PanicError
			if !errors.As(a.Err(), &p) {
				t.Errorf("%s: ended with %v", name, a.Err())
			}
		}
	}
	if err := errors.Join(persist(t.Context(), good, note(1)), good.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

// Design §11: an actor with much to do does not keep the others of its pool from theirs.
func TestPoolIsFair(t *testing.T) {
	j := memory.New()
	pool := new(persistent.Pool)
	stop := make(chan struct{})
	var busy []*actor
	for _, name := range []string{"a", "b", "c", "d"} {
		a, _ := openIn(t, j, name, persistent.Options{Pool: pool})
		busy = append(busy, a)
		var again func(*persistent.Context[event], *shelf)
		again = func(*persistent.Context[event], *shelf) {
			select {
			case <-stop:
			default:
				// It has a command whenever it has done one.
				if err := a.Push(command{"again", again}); err != nil {
					t.Error(err)
				}
			}
		}
		if err := a.Push(command{"again", again}); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := openIn(t, j, "patient", persistent.Options{Pool: pool})
	for n := range 100 {
		if err := persist(t.Context(), a, note(n)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	for _, a := range append(busy, a) {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// starting is a journal whose streams are journal.Starters that answer as told.
type starting struct {
	journal.Journal
	mu      sync.Mutex
	answers []error // of the next appends, before they are tried: nil: try it; errHang: never
	started int
}

var errHang = errors.New("hangs")

func (j *starting) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	st, err := j.Journal.Acquire(ctx, name)
	return startingStream{st, j}, err
}

type startingStream struct {
	journal.Stream
	j *starting
}

func (s startingStream) StartAppend(after uint64, rec *journal.Record, done func(error)) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.j.started++
	var answer error
	if len(s.j.answers) > 0 {
		answer, s.j.answers = s.j.answers[0], s.j.answers[1:]
	}
	go func() {
		switch {
		case errors.Is(answer, errHang):
		case answer != nil:
			done(answer)
		default:
			done(s.Append(context.Background(), after, rec))
		}
	}()
}

// G10: what a Starter has no answer to is appended again until there is one; what it refuses is refused; what it holds when the actor is
// killed is unknown.
func TestStarter(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := persistent.Options{}
			if pooled {
				o.Pool = new(persistent.Pool)
			}
			j := &starting{Journal: memory.New(), answers: []error{nil, journal.ErrUnknown, nil}}
			a, s := openIn(t, j, "shelf", o)
			for n := range 3 {
				if err := persist(t.Context(), a, note(1<<n)); err != nil {
					t.Error(err)
				}
			}
			if s.sum != 7 || j.started != 3 {
				t.Errorf("sum %d, %d started", s.sum, j.started)
			}
			j.mu.Lock()
			j.answers = []error{errHang}
			j.mu.Unlock()
			outcome := send(t, a, note(100))
			pass(t, time.Hour) // it is waited for as long as it takes
			select {
			case err := <-outcome:
				t.Errorf("an answer while the store hangs: %v", err)
			default:
			}
			a.Kill()
			<-a.Done()
			if got := is(t, <-outcome); got != "unknown" {
				t.Errorf("the record under way is told as %s", got)
			}
			a, s = openIn(t, j, "shelf", o)
			if s.sum != 7 {
				t.Errorf("recovered %d", s.sum)
			}
			j.mu.Lock()
			j.answers = []error{journal.ErrFenced}
			j.mu.Unlock()
			if err := persist(t.Context(), a, note(1)); !errors.Is(err, journal.ErrFenced) {
				t.Errorf("refused with %v", err)
			}
			<-a.Done()
		})
	}
}
