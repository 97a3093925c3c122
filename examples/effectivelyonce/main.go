// Command effectivelyonce shows how each message has its effect exactly once, though messages are delivered at least
// once and both sides crash.
//
// A sender, durable, sends deposits over a network that loses a fifth of them to a ledger that keeps, in one persistent
// actor, the balances together with the numbers of the deposits in them. Either side is killed now and then. In the
// end the balance is the sum of all deposits, each once.
//
//	go run ./examples/effectivelyonce
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
	"github.com/holdfastmq/holdfast/delivery/durable"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// The journals would be on two machines; in memory a killed process loses what was not stored all the same.
	ledgers, senders := memory.New(), memory.New()
	network := deliverytest.NewNetwork(1, deliverytest.Faults{Drop: 0.2, Duplicate: 0.2, MaxDelay: 5 * time.Millisecond})
	const total = 300

	bank := &Bank{journal: ledgers}
	if err := bank.Start(ctx); err != nil {
		return err
	}
	for sent := uint64(0); sent < total; {
		life, cancel := context.WithTimeout(ctx, 150*time.Millisecond) // killed after that
		n, err := Pay(life, senders, deliverytest.Over(network, delivery.Link[Deposit](bank)), total)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		sent = n
		fmt.Printf("sender stopped after %d of %d deposits; the bank is killed too\n", sent, total)
		if err := bank.Restart(ctx); err != nil {
			return err
		}
	}
	balance, err := bank.Balance(ctx)
	if err != nil {
		return err
	}
	bank.Kill()
	fmt.Printf("balance %d, sum of all deposits %d\n", balance, total*(total+1)/2)
	return nil
}

// Pay is the sender: it pays 1, 2, 3 … total cents, one after the other, and returns how many are confirmed, all below
// that number. The n-th deposit is the message with number n: so after a crash the journal itself says which
// deposit is next.
func Pay(ctx context.Context, j journal.Journal, to delivery.Link[Deposit], total uint64) (confirmed uint64, err error) {
	d, err := durable.Open(ctx, j, "payments", durable.Options{ProducerID: "payments"})
	if err != nil {
		return 0, err
	}
	p, err := delivery.NewProducerController(delivery.ProducerOptions[Deposit]{Consumer: to, Journal: d, ResendTimeout: 20 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	for n := p.Stats().NextSeq; n <= total; n++ {
		if _, err = p.Post(ctx, Deposit{Account: "alice", Cents: int64(n)}); err != nil {
			break
		}
	}
	if err == nil {
		err = p.Shutdown(ctx)
	}
	p.Close()
	<-p.Stopped()
	return p.Stats().Floor - 1, err
}
