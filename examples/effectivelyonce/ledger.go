package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// Deposit is a message.
type Deposit struct {
	Account string
	Cents   int64
}

// Ledger applies each deposit to its account once, although deposits come at least once: the balances and the
// numbers of the deposits that they contain are one state, stored by one event. So there is no moment at which one
// of them is stored and the other is not.
type Ledger struct {
	actor *persistent.Actor[apply, applied]
}

// apply is the command: a deposit with its number. reply is called once it is in the stored balance, now or before.
type apply struct {
	from    string // producer id and incarnation
	seq     uint64
	deposit Deposit
	reply   persistent.Reply[int64]
}

// applied is the event.
type applied struct {
	From    string
	Seq     uint64
	Account string
	Cents   int64
}

// balances is the state, and what a snapshot stores.
type balances struct {
	persistent.Base[apply, applied]
	Cents map[string]int64
	// Last is the highest number applied, by producer and incarnation. One number is enough because the consumer
	// is InOrder: everything below it was applied before it.
	Last map[string]uint64
}

// OpenLedger opens the ledger in a stream of j.
func OpenLedger(ctx context.Context, j journal.Journal) (*Ledger, error) {
	b := &balances{}
	actor, err := persistent.Open(ctx, j, "ledger", b, persistent.JSON[applied](), persistent.Options{})
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{actor}, nil
}

// Handle is the consumer's handler: it returns nil once the deposit is in the stored balance.
func (l *Ledger) Handle(ctx context.Context, d Deposit) error {
	m, ok := delivery.MetadataOf(ctx)
	if !ok {
		return fmt.Errorf("deposit without metadata")
	}
	_, err := persistent.Ask(ctx, l.actor, func(reply persistent.Reply[int64]) apply {
		return apply{from: m.ProducerID + "/" + m.Incarnation, seq: m.Seq, deposit: d, reply: reply}
	})
	return err
}

// Balance returns the cents of an account, all of them stored.
func (l *Ledger) Balance(ctx context.Context, account string) (int64, error) {
	return persistent.Ask(ctx, l.actor, func(reply persistent.Reply[int64]) apply {
		return apply{deposit: Deposit{Account: account}, reply: reply} // number 0: applied before
	})
}

// Close closes the ledger.
func (l *Ledger) Close(ctx context.Context) error { return l.actor.Stop(ctx) }

// Command decides: a deposit that is in the balance already changes nothing.
func (b *balances) Command(a *persistent.Context[applied], c apply) {
	if c.seq > b.Last[c.from] {
		err := a.PersistAsync(applied{From: c.from, Seq: c.seq, Account: c.deposit.Account, Cents: c.deposit.Cents})
		if err != nil {
			c.reply(0, err)
			return
		}
	}
	balance := b.Cents[c.deposit.Account]
	a.After(func(err error) { c.reply(balance, err) })
}

// Apply changes the state, live and on recovery.
func (b *balances) Apply(_ uint64, _ int64, e applied) {
	b.Cents[e.Account] += e.Cents
	b.Last[e.From] = e.Seq
}

// Capture and Restore are the snapshot.
func (b *balances) Capture() iter.Seq[[]byte] {
	return persistent.CaptureJSON(snapshot{b.Cents, b.Last})
}

// Restore replaces the state.
func (b *balances) Restore(_ journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	s := snapshot{map[string]int64{}, map[string]uint64{}}
	err := persistent.RestoreJSON(chunks, &s)
	b.Cents, b.Last = s.Cents, s.Last
	return err
}

type snapshot struct {
	Cents map[string]int64
	Last  map[string]uint64
}
