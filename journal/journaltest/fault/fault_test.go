package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
)

func acquire(t *testing.T, j journal.Journal) journal.Stream {
	t.Helper()
	s, err := j.Acquire(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// record makes the first record of an owner.
func record(t *testing.T, s journal.Stream, buffered bool) *journal.Record {
	t.Helper()
	at := s.Acquired()
	r := &journal.Record{
		Header:   journal.Header{UID: at.UID, Epoch: at.Epoch, First: at.End + 1, Count: 1, Kind: journal.KindEvents},
		Meta:     []byte("m"),
		Body:     [][]byte{[]byte("b")},
		Buffered: buffered,
	}
	if err := r.Seal(at.EndCRC); err != nil {
		t.Fatal(err)
	}
	return r
}

// end reads where the stream ends, past all faults.
func end(t *testing.T, inner journal.Journal) uint64 {
	t.Helper()
	r, err := inner.Open(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.End
}

// §12: each action does to an append what it says: the error, and whether it has its effect.
func TestActions(t *testing.T) {
	refused := errors.New("refused")
	closed := make(chan struct{})
	close(closed)
	for name, test := range map[string]struct {
		action fault.Action
		want   error
		end    uint64
	}{
		"nothing":     {fault.Action{}, nil, 1},
		"fail":        {fault.Fail(), journal.ErrUnknown, 0},
		"lose answer": {fault.LoseAnswer(), journal.ErrUnknown, 1},
		"full":        {fault.Full(), journal.ErrFull, 0},
		"fail with":   {fault.FailWith(refused), refused, 0},
		"do":          {fault.Action{After: fault.Fault{Do: func(context.Context) error { return refused }}}, refused, 1},
		"released":    {fault.HoldBefore(closed), nil, 1},
		"no crash":    {fault.CrashBefore(), journal.ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			j := fault.New(inner, fault.Options{})
			s := acquire(t, j)
			r := record(t, s, false)
			j.Next(fault.Append, test.action)
			if err := s.Append(t.Context(), 0, r); !errors.Is(err, test.want) {
				t.Fatalf("append: %v, want %v", err, test.want)
			}
			if got := end(t, inner); got != test.end {
				t.Fatalf("end %d, want %d", got, test.end)
			}
			if err := s.Append(t.Context(), 0, r); err != nil {
				t.Fatalf("the next append: %v", err)
			}
			if n := j.Count(fault.Append); n != 2 {
				t.Fatalf("counted %d appends, want 2", n)
			}
		})
	}
}

// §12: a call that is held up ends with its context; Late lets it have its effect afterwards.
func TestHeldUp(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := memory.New()
			j := fault.New(inner, fault.Options{})
			s := acquire(t, j)
			release := make(chan struct{})
			action := fault.HoldBefore(release)
			if late {
				action = fault.HoldLate(release)
			}
			j.Next(fault.Append, action)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := s.Append(ctx, 0, record(t, s, false))
			if !errors.Is(err, journal.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, want ErrUnknown and the context's error", err)
			}
			close(release)
			synctest.Wait()
			if got := end(t, inner); (got == 1) != late {
				t.Fatalf("late %v: end %d", late, got)
			}
		})
	}
}

// §12: a paused store answers nothing until it is resumed; Close ends what waits.
func TestPauseAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		s := acquire(t, j)
		j.Pause()
		time.AfterFunc(30*time.Second, j.Resume)
		start := time.Now()
		if _, err := s.Info(t.Context()); err != nil || time.Since(start) != 30*time.Second {
			t.Fatalf("info: %v after %v, want 30s", err, time.Since(start))
		}
		j.Pause()
		time.AfterFunc(time.Second, func() { _ = j.Close() })
		if err := s.DiscardMeta(t.Context(), 1); !errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrUnknown) {
			t.Fatalf("%v, want ErrClosed", err)
		}
	})
}

// §12: what was not synced is dropped by a power cut, before or after an append.
func TestCrash(t *testing.T) {
	for name, test := range map[string]struct {
		action   fault.Action
		buffered bool
		end      uint64
	}{
		"before":         {fault.CrashBefore(), false, 0},
		"after":          {fault.CrashAfter(), false, 1},
		"after buffered": {fault.CrashAfter(), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := memory.NewStore(memory.Options{})
			if err != nil {
				t.Fatal(err)
			}
			j := fault.New(store.Open(), fault.Options{Crash: store.Crash})
			s := acquire(t, j)
			r := record(t, s, test.buffered)
			j.Next(fault.Append, test.action)
			if err := s.Append(t.Context(), 0, r); !errors.Is(err, journal.ErrUnknown) {
				t.Fatalf("append: %v, want ErrUnknown", err)
			}
			if err := s.Append(t.Context(), 0, r); !errors.Is(err, journal.ErrClosed) {
				t.Fatalf("after the crash: %v, want ErrClosed", err)
			}
			if got := end(t, store.Open()); got != test.end {
				t.Fatalf("end %d, want %d", got, test.end)
			}
		})
	}
}

// G2: a full store refuses appends and parts, and nothing else.
func TestFull(t *testing.T) {
	j := fault.New(memory.New(), fault.Options{})
	s := acquire(t, j)
	j.SetFull(true)
	if err := s.Append(t.Context(), 0, record(t, s, false)); !errors.Is(err, journal.ErrFull) {
		t.Fatalf("append: %v, want ErrFull", err)
	}
	if err := s.WritePart(t.Context(), "p", nil); !errors.Is(err, journal.ErrFull) {
		t.Fatalf("write part: %v, want ErrFull", err)
	}
	if err := errors.Join(s.DiscardBodies(t.Context(), nil), s.DiscardMeta(t.Context(), 1), s.DeleteParts(t.Context(), []string{"p"})); err != nil {
		t.Fatalf("discards: %v", err)
	}
	j.SetFull(false)
	if err := s.Append(t.Context(), 0, record(t, s, false)); err != nil {
		t.Fatal(err)
	}
}

// §12: reads fail at their beginning or at their end, as planned.
func TestReadsFail(t *testing.T) {
	j := fault.New(memory.New(), fault.Options{})
	s := acquire(t, j)
	if err := s.Append(t.Context(), 0, record(t, s, false)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for want, action := range []fault.Action{{Before: fault.Fault{Err: broken}}, {After: fault.Fault{Err: broken}}} {
		j.Next(fault.ReadMeta, action)
		n := 0
		var last error
		for _, err := range s.ReadMeta(t.Context(), 1, 1) {
			if last = err; err == nil {
				n++
			}
		}
		if n != want || !errors.Is(last, broken) {
			t.Fatalf("%d records, then %v; want %d and the planned error", n, last, want)
		}
	}
}

// §12: the same seed gives the same faults, at about the rates asked for.
func TestSeeded(t *testing.T) {
	rates := fault.Rates{Before: 0.2, After: 0.2, Full: 0.2}
	a, b := fault.Seeded(7, rates), fault.Seeded(7, rates)
	var before, after, full int
	for range 1000 {
		x, y := a(fault.Call{Op: fault.Append}), b(fault.Call{Op: fault.Append})
		if x.Before.Err != y.Before.Err || x.After.Err != y.After.Err {
			t.Fatal("the same seed gave other faults")
		}
		switch {
		case errors.Is(x.Before.Err, journal.ErrFull):
			full++
		case x.Before.Err != nil:
			before++
		case x.After.Err != nil:
			after++
		}
	}
	for what, n := range map[string]int{"before": before, "after": after, "full": full} {
		if n < 150 || n > 250 {
			t.Errorf("%s: %d of 1000, want about 200", what, n)
		}
	}
	if x := a(fault.Call{Op: fault.Info}); x.Before.Err != nil || x.After.Err != nil {
		t.Error("a read was made to fail")
	}
}
