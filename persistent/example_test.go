package persistent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// Deposit is a message to an account. Messages of one producer are numbered from 1 and may come again, after a
// crash of either side, a lost acknowledgement, or a restart of a queue.
type Deposit struct {
	Producer string
	Seq      uint64
	Amount   int
}

// deposit is the command: the message, and where the answer goes.
type deposit struct {
	Deposit
	reply persistent.Reply[int]
}

// account keeps the business state, and for each producer how far it got. Both change by the same event, so they are stored
// together or not at all: however often a message comes, it counts once.
type account struct {
	persistent.Base[deposit, Deposit]
	state accountState
}

type accountState struct {
	Balance int
	Done    map[string]uint64 // the last seq that was processed, by producer
}

// Command decides. A message that was processed before is answered again and changes nothing.
func (a *account) Command(ctx *persistent.Context[Deposit], cmd deposit) {
	switch done := a.state.Done[cmd.Producer]; {
	case cmd.Seq > done+1:
		cmd.reply(0, fmt.Errorf("seq %d comes before %d", cmd.Seq, done+1))
		return
	case cmd.Seq == done+1:
		if err := ctx.PersistAsync(cmd.Deposit); err != nil {
			cmd.reply(0, err)
			return
		}
	}
	// Also the repeated answer waits for storage: the first one may be on its way there still.
	balance := a.state.Balance
	ctx.After(func(err error) { cmd.reply(balance, err) })
}

// Apply changes the state by one event, when it is decided, and again when it is replayed.
func (a *account) Apply(_ uint64, _ int64, e Deposit) {
	a.state.Balance += e.Amount
	a.state.Done[e.Producer] = e.Seq
}

func (a *account) Capture() iter.Seq[[]byte] { return persistent.CaptureJSON(a.state) }

func (a *account) Restore(_ journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	a.state = accountState{Done: map[string]uint64{}}
	return persistent.RestoreJSON(chunks, &a.state)
}

// openAccount opens the account's actor.
func openAccount(ctx context.Context, j journal.Journal) (*persistent.Actor[deposit, Deposit], error) {
	o := persistent.Options{Logger: slog.New(slog.DiscardHandler)}
	return persistent.Open(ctx, j, "account-17", &account{}, persistent.JSON[Deposit](), o)
}

// process has the account process a message, as the handler of a queue's or a link's messages would. It returns
// nil, which acknowledges the message, only once the message counts.
func process(ctx context.Context, a *persistent.Actor[deposit, Deposit], m Deposit) (balance int, err error) {
	return persistent.Ask(ctx, a, func(reply persistent.Reply[int]) deposit { return deposit{m, reply} })
}

// Effectively-once processing: each message counts once, though it is delivered at least once, and though the process
// crashes in between.
func ExampleOpen() {
	ctx := context.Background()
	j := memory.New() // segment.Open("./data", segment.Options{}) in a program
	a, err := openAccount(ctx, j)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages := []Deposit{{"till-1", 1, 100}, {"till-2", 1, 10}, {"till-1", 2, 200}, {"till-2", 2, 20}}
	for _, m := range messages[:3] {
		balance, err := process(ctx, a, m)
		fmt.Println("processed", m, "balance", balance, err)
	}

	a.Kill() // as a crash would: nothing is drained, no snapshot is made
	<-a.Done()
	_, err = process(ctx, a, messages[3])
	fmt.Println("after the crash:", errors.Is(err, persistent.ErrNotStored))

	if a, err = openAccount(ctx, j); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages { // all of them come again
		balance, err := process(ctx, a, m)
		fmt.Println("processed", m, "balance", balance, err)
	}
	if err := a.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// processed {till-1 1 100} balance 100 <nil>
	// processed {till-2 1 10} balance 110 <nil>
	// processed {till-1 2 200} balance 310 <nil>
	// after the crash: true
	// processed {till-1 1 100} balance 310 <nil>
	// processed {till-2 1 10} balance 310 <nil>
	// processed {till-1 2 200} balance 310 <nil>
	// processed {till-2 2 20} balance 330 <nil>
}

// visits is the smallest actor: it counts, and forgets nothing.
type visits struct {
	persistent.Base[string, string] // both the command and the event are the name of a visitor
	count                           map[string]int
}

func (v *visits) Command(ctx *persistent.Context[string], name string) {
	if err := ctx.Persist(name); err != nil {
		fmt.Println(err)
		return
	}
	ctx.After(func(err error) { fmt.Println(name, v.count[name], err) })
}

func (v *visits) Apply(_ uint64, _ int64, name string) { v.count[name]++ }

// A behavior without snapshots replays all of its events.
func ExampleBehavior() {
	ctx := context.Background()
	j := memory.New()
	for range 2 {
		v := &visits{count: map[string]int{}}
		a, err := persistent.Open(ctx, j, "visits", v, persistent.JSON[string](), persistent.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("recovered", maps.Clone(v.count))
		for _, name := range []string{"Ada", "Ada", "Max"} {
			if err := a.Tell(ctx, name); err != nil {
				fmt.Println(err)
			}
		}
		if err := a.Stop(ctx); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// recovered map[]
	// Ada 1 <nil>
	// Ada 2 <nil>
	// Max 1 <nil>
	// recovered map[Ada:2 Max:1]
	// Ada 3 <nil>
	// Ada 4 <nil>
	// Max 2 <nil>
}
