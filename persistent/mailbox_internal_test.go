package persistent

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
)

// G9: a close that comes when the actor has seen an open mailbox, and is not asleep yet, wakes it all the same.
func TestCloseBeforeSleepWakes(t *testing.T) {
	m := newMailbox[int](1)
	if m.drained() {
		t.Fatal("open mailbox is drained")
	}
	m.close(ErrStopped)
	if m.sleep(true) {
		select {
		case <-m.wake:
		default:
			t.Error("it sleeps for ever")
		}
	}
}

// G9: a Tell whose context ends when it is let in was let in, or was not: never both.
func TestTellLetInAsItsContextEnds(t *testing.T) {
	for range 2000 {
		m := newMailbox[int](1)
		if err := m.tryTell(item[int]{cmd: 1}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error)
		go func() { told <- m.tell(ctx, item[int]{cmd: 2}) }()
		go cancel()
		first := m.take(nil)
		err := <-told
		second := m.take(nil)
		if got := len(first) + len(second); (err == nil) != (got == 2) || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("told %v, %d commands", err, got)
		}
	}
}

// G4: however many wait for room, only as many are let in as there is room for.
func TestTakeLetsInUpToTheLimit(t *testing.T) {
	m := newMailbox[int](2)
	waiting := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.callers)
	}
	told := make(chan error)
	for i := range 7 {
		go func() { told <- m.tell(t.Context(), item[int]{cmd: i}) }()
	}
	for range 2 {
		if err := <-told; err != nil {
			t.Fatal(err)
		}
	}
	for waiting() < 5 {
		runtime.Gosched()
	}
	var counts []int
	for range 4 {
		counts = append(counts, len(m.take(nil)))
	}
	for range 5 {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	if want := []int{2, 2, 2, 1}; !slices.Equal(counts, want) {
		t.Errorf("taken %v, want %v", counts, want)
	}
}

// Commands of pushFirst go before the others, among themselves in their order, and nothing is lost at the end.
func TestPushFirst(t *testing.T) {
	m := newMailbox[int](1)
	for i := range 3 {
		if err := errors.Join(m.push(item[int]{cmd: i}), m.pushFirst(item[int]{cmd: 10 + i})); err != nil {
			t.Fatal(err)
		}
	}
	if !m.hurry.Load() || m.sleep(true) {
		t.Error("it does not hurry")
	}
	a := &Actor[int, int]{box: m}
	a.taken = m.take(nil)
	var got []int
	next := func() {
		if it := a.nextCommand(); it != nil {
			got = append(got, it.cmd)
		}
	}
	for range 4 {
		next()
	}
	if err := m.pushFirst(item[int]{cmd: 13}); err != nil {
		t.Fatal(err)
	}
	m.close(errors.New("closed"))
	if m.drained() {
		t.Error("drained, and something is left")
	}
	for range 5 {
		next()
	}
	if want := []int{10, 11, 12, 0, 13, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !m.drained() || !a.allBegun() || m.pushFirst(item[int]{}) == nil {
		t.Error("something is left")
	}
}
