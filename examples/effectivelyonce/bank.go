package main

import (
	"context"
	"sync"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
)

// Bank is the receiving process: a ledger behind a consumer. It is a Link to whichever life of it there is.
type Bank struct {
	journal journal.Journal

	mu       sync.Mutex
	ledger   *Ledger
	consumer *delivery.ConsumerController[Deposit]
}

// Start opens the ledger and begins to receive.
func (b *Bank) Start(ctx context.Context) error {
	ledger, err := OpenLedger(ctx, b.journal)
	if err != nil {
		return err
	}
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[Deposit]{InOrder: true}, ledger.Handle)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger, b.consumer = ledger, consumer
	return nil
}

// Kill ends the bank as a crash does: nothing is finished, and what was remembered of producers is gone.
func (b *Bank) Kill() {
	b.mu.Lock()
	ledger, consumer := b.ledger, b.consumer
	b.mu.Unlock()
	consumer.Close()
	ledger.actor.Kill()
	<-consumer.Stopped()
	<-ledger.actor.Done()
}

// Restart is Kill and Start.
func (b *Bank) Restart(ctx context.Context) error {
	b.Kill()
	return b.Start(ctx)
}

// Balance returns what is in the account.
func (b *Bank) Balance(ctx context.Context) (int64, error) {
	b.mu.Lock()
	ledger := b.ledger
	b.mu.Unlock()
	return ledger.Balance(ctx, "alice")
}

// Deliver gives deposits to the present consumer.
func (b *Bank) Deliver(d delivery.Delivery[Deposit]) error {
	b.mu.Lock()
	consumer := b.consumer
	b.mu.Unlock()
	return consumer.Deliver(d)
}

// Farewell tells the present consumer.
func (b *Bank) Farewell(f delivery.Farewell) error {
	b.mu.Lock()
	consumer := b.consumer
	b.mu.Unlock()
	return consumer.Farewell(f)
}
