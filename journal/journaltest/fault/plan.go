package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Op is a method of a journal, reader or stream.
type Op string

// The calls that faults apply to. Limits, Acquired, Release and Close always pass.
const (
	Acquire       Op = "acquire"
	Open          Op = "open"
	Streams       Op = "streams"
	Info          Op = "info"
	ReadMeta      Op = "read meta"
	ReadBodies    Op = "read bodies"
	ReadPart      Op = "read part"
	Parts         Op = "parts"
	Append        Op = "append"
	DiscardBodies Op = "discard bodies"
	DiscardMeta   Op = "discard meta"
	WritePart     Op = "write part"
	DeleteParts   Op = "delete parts"
	Drop          Op = "drop"
	Import        Op = "import"
	PutMember     Op = "put member"
	DeleteMember  Op = "delete member"
	Members       Op = "members"
)

// Changes tells whether the call changes a stream, or a member's entry.
func (op Op) Changes() bool {
	switch op {
	case Acquire, Append, DiscardBodies, DiscardMeta, WritePart, DeleteParts, Drop, Import, PutMember, DeleteMember:
		return true
	}
	return false
}

// Call is a call that is about to be made.
type Call struct {
	Op     Op
	Stream string          // empty for Streams and Members; the id for PutMember and DeleteMember
	N      int             // the how manieth of its Op on this journal, from 1
	Record *journal.Record // of Append; not to be kept or changed
	Part   string          // of WritePart and ReadPart
}

// Fault is what happens at one point of a call, in the order of the fields. The zero value
// is nothing.
type Fault struct {
	// Delay waits that long.
	Delay time.Duration
	// Wait waits until the channel is closed.
	Wait <-chan struct{}
	// Do is run, with the call's context. An error ends the call like Err.
	Do func(ctx context.Context) error
	// Crash cuts the power: Options.Crash is called, and the call ends with ErrUnknown.
	Crash bool
	// Err ends the call with this error.
	Err error
	// Late, in Action.Before, lets a change take effect after all, once its Delay and Wait are
	// over, when its context had ended during them and its caller was told ErrUnknown: as a
	// request does that was held up in the network.
	Late bool
}

// Action is what happens to a call: Before it reaches the journal (an error there
// means that it has no effect), and After (it had its effect). Of the reads that
// return a sequence, After comes behind the last element.
type Action struct{ Before, After Fault }

// Plan chooses what happens to a call. It may be called concurrently.
type Plan func(Call) Action

// Fail is a call without effect whose outcome is unknown to the caller.
func Fail() Action { return Action{Before: Fault{Err: journal.ErrUnknown}} }

// LoseAnswer is a call with its effect whose outcome is unknown to the caller.
func LoseAnswer() Action { return Action{After: Fault{Err: journal.ErrUnknown}} }

// Full is a call refused for want of room.
func Full() Action { return FailWith(journal.ErrFull) }

// FailWith is a call without effect that ends with err.
func FailWith(err error) Action { return Action{Before: Fault{Err: err}} }

// HoldBefore holds a call up, before it has its effect, until release is closed. When the
// caller's context ends first, the call has no effect.
func HoldBefore(release <-chan struct{}) Action { return Action{Before: Fault{Wait: release}} }

// HoldLate is HoldBefore, but the call has its effect also when the caller's context ended first.
func HoldLate(release <-chan struct{}) Action {
	return Action{Before: Fault{Wait: release, Late: true}}
}

// HoldAfter holds the answer of a call back until release is closed.
func HoldAfter(release <-chan struct{}) Action { return Action{After: Fault{Wait: release}} }

// CrashBefore and CrashAfter cut the power when the call has not yet had, or has had, its effect.
func CrashBefore() Action { return Action{Before: Fault{Crash: true}} }

// CrashAfter cuts the power once the call had its effect. See CrashBefore.
func CrashAfter() Action { return Action{After: Fault{Crash: true}} }

// Delay is a call that takes d longer.
func Delay(d time.Duration) Action { return Action{Before: Fault{Delay: d}} }

// Nth plans a for the n-th call of op, from 1, and nothing for any other.
func Nth(op Op, n int, a Action) Plan {
	return func(c Call) Action {
		if c.Op == op && c.N == n {
			return a
		}
		return Action{}
	}
}

// Rates are probabilities, 0…1, for [Seeded]. All but MaxDelay apply to changes only.
type Rates struct {
	Before   float64 // fails without effect, outcome unknown
	After    float64 // has its effect, outcome unknown
	Full     float64 // ErrFull, of Append and WritePart
	MaxDelay time.Duration
}

// Seeded plans faults at random. The same seed gives the same faults to the same order of calls.
func Seeded(seed uint64, r Rates) Plan {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(c Call) Action {
		mu.Lock()
		defer mu.Unlock()
		var a Action
		if r.MaxDelay > 0 {
			a.Before.Delay = time.Duration(rng.Int64N(int64(r.MaxDelay) + 1))
		}
		if !c.Op.Changes() {
			return a
		}
		full := c.Op == Append || c.Op == WritePart
		switch p := rng.Float64(); {
		case p < r.Before:
			a.Before.Err = journal.ErrUnknown
		case p < r.Before+r.After:
			a.After.Err = journal.ErrUnknown
		case full && p < r.Before+r.After+r.Full:
			a.Before.Err = journal.ErrFull
		}
		return a
	}
}

// wait is the Delay and Wait of a fault.
func (f *Fault) wait(ctx context.Context, closed <-chan struct{}) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return journal.ErrClosed
		}
	}
	if f.Wait != nil {
		select {
		case <-f.Wait:
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return journal.ErrClosed
		}
	}
	return nil
}

// act is the rest of a fault.
func (f *Fault) act(ctx context.Context, crash func()) error {
	if f.Do != nil {
		if err := f.Do(ctx); err != nil {
			return err
		}
	}
	if f.Crash {
		if crash == nil {
			return fmt.Errorf("power cut, but Options.Crash is not set: %w", journal.ErrInvalid)
		}
		crash()
		return fmt.Errorf("power cut: %w", journal.ErrUnknown)
	}
	return f.Err
}
