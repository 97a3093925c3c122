package persistent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// hang has the actor work on a command until release is closed.
func hang(t *testing.T, a *actor) (release chan struct{}) {
	release = make(chan struct{})
	begun := make(chan struct{})
	if err := a.Tell(t.Context(), command{"hang", func(*persistent.Context[event], *shelf) {
		close(begun)
		<-release
	}}); err != nil {
		t.Fatal(err)
	}
	<-begun
	return release
}

// remember is a command that notes its name.
func remember(names *[]string, name string) command {
	return command{name, func(*persistent.Context[event], *shelf) { *names = append(*names, name) }}
}

// G4: the mailbox is bounded; Tell waits by its context, in order; TryTell says so; Push is not counted and never waits.
func TestMailboxBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := open(t, memory.New(), persistent.Options{Mailbox: 3})
		release := hang(t, a)
		var got, want []string
		for i := range 5 {
			name := fmt.Sprint("try ", i)
			err := a.TryTell(remember(&got, name))
			if i < 3 && err != nil {
				t.Errorf("TryTell %d: %v", i, err)
			}
			if i >= 3 && (!errors.Is(err, persistent.ErrMailboxFull) || is(t, err) != "not stored") {
				t.Errorf("TryTell %d: %v", i, err)
			}
			if i < 3 {
				want = append(want, name)
			}
		}
		var waiting sync.WaitGroup
		for i := range 8 {
			name := fmt.Sprint("tell ", i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if i%4 == 1 {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			} else {
				want = append(want, name)
			}
			waiting.Go(func() {
				defer cancel()
				err := a.Tell(ctx, remember(&got, name))
				if ok := i%4 != 1; ok != (err == nil) {
					t.Errorf("%s: %v", name, err)
				}
				if err != nil && (!errors.Is(err, context.DeadlineExceeded) || is(t, err) != "not stored") {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		for i := range 1000 {
			if err := a.Push(remember(&got, fmt.Sprint("push ", i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if err := a.TryTell(remember(&got, "never")); err == nil {
			t.Error("TryTell passed those who wait")
		}
		close(release)
		waiting.Wait()
		synctest.Wait()
		pushed := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.HasPrefix(s, "push") })
		told := slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "push") })
		if !slices.Equal(told, want) {
			t.Errorf("commands began in order\n%v\nwant\n%v", told, want)
		}
		if len(pushed) != 1000 || pushed[0] != "push 0" || pushed[999] != "push 999" {
			t.Errorf("%d pushed commands, or in another order", len(pushed))
		}
	})
}

// G4: however many tell, no more are in the mailbox than twice its bound, and all get their turn, each caller's in order.
func TestMailboxUnderLoad(t *testing.T) {
	a, s := open(t, memory.New(), persistent.Options{Mailbox: 8})
	const callers, each = 16, 500
	last := make([]int, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := 1; i <= each; i++ {
				cmd := command{"count", func(a *persistent.Context[event], s *shelf) {
					if last[c] != i-1 {
						s.fail("caller %d: command %d after %d", c, i, last[c])
					}
					last[c] = i
					if i%10 == 0 {
						if err := a.PersistAsync(note(1)); err != nil {
							s.fail("%v", err)
						}
					}
				}}
				var err error
				switch i % 3 {
				case 0:
					err = a.Push(cmd)
				default:
					err = a.Tell(t.Context(), cmd)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	stop(t, a, s)
	for c, n := range last {
		if n != each {
			t.Errorf("caller %d: %d of %d commands were begun", c, n, each)
		}
	}
	if s.sum != callers*each/10 {
		t.Errorf("sum %d", s.sum)
	}
}

// G9: a Tell that waits for room ends when the actor stops.
func TestStopRefusesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := open(t, memory.New(), persistent.Options{Mailbox: 1})
		release := hang(t, a)
		var got []string
		if err := a.TryTell(remember(&got, "in")); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error)
		go func() { waits <- a.Tell(t.Context(), remember(&got, "out")) }()
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- a.Stop(t.Context()) }()
		if err := <-waits; !errors.Is(err, persistent.ErrStopped) || is(t, err) != "not stored" {
			t.Errorf("told %v", err)
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, []string{"in"}) || len(s.undelivered) != 0 {
			t.Errorf("begun %v, undelivered %v", got, s.undelivered)
		}
	})
}
