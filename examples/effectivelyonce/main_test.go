package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

// total is how many deposits each run has.
const total = 40

// crash is where a run loses power: at the n-th append of one side, before or after it took effect.
type crash struct {
	ledger bool // the bank's side, else the sender's
	n      int
	after  bool
}

// Killed at every step, the state equals the sum of each message once (issue, effectively-once): each append of each
// side, before and after its effect.
func TestKilledAtEveryStep(t *testing.T) {
	points := 0
	for _, ledger := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				c, hit := crash{ledger, n, after}, false
				synctest.Test(t, func(t *testing.T) { hit = runWithCrash(t, c) })
				if t.Failed() {
					t.Fatalf("crash at %+v", c)
				}
				if !hit {
					break // the run ended before its n-th append
				}
				points++
			}
		}
	}
	t.Logf("%d crash points", points)
	if points < 20 {
		t.Errorf("only %d crash points", points)
	}
}

func runWithCrash(t *testing.T, c crash) (hit bool) {
	network := deliverytest.NewNetwork(uint64(c.n), deliverytest.Faults{Drop: 0.2, Duplicate: 0.3, MaxDelay: 30 * time.Millisecond})
	side := func(mine bool) (store *memory.Store, open func() *fault.Journal) {
		store, _ = memory.NewStore(memory.Options{})
		appends := 0
		return store, func() *fault.Journal {
			j := fault.New(store.Open(), fault.Options{Crash: store.Crash})
			j.SetPlan(func(call fault.Call) (a fault.Action) {
				if call.Op != fault.Append || !mine || hit {
					return a
				}
				if appends++; appends == c.n {
					hit = true
					a.Before.Crash, a.After.Crash = !c.after, c.after
				}
				return a
			})
			return j
		}
	}
	_, openLedger := side(c.ledger)
	_, openSender := side(!c.ledger)

	bank := &Bank{journal: openLedger()}
	if err := bank.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	watched := make(chan struct{})
	done := make(chan struct{})
	go func() { // restarts the bank when its ledger is gone
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if bank.ledger.actor.Err() == nil {
				continue
			}
			bank.Kill()
			bank.journal = openLedger()
			if err := bank.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}()
	for tries := 0; ; tries++ {
		n, err := Pay(t.Context(), openSender(), deliverytest.Over(network, delivery.Link[Deposit](bank)), total)
		if err == nil && n == total {
			break
		}
		if tries > 3 {
			t.Fatalf("%d confirmed: %v", n, err)
		}
	}
	close(done)
	<-watched
	checkBalance(t, bank)
	return hit
}

func checkBalance(t *testing.T, bank *Bank) {
	t.Helper()
	if err := bank.Restart(t.Context()); err != nil { // what counts is what is stored
		t.Fatal(err)
	}
	balance, err := bank.Balance(t.Context())
	if want := int64(total * (total + 1) / 2); err != nil || balance != want {
		t.Errorf("balance %d, %v, want %d", balance, err, want)
	}
	bank.Kill()
}

// The same with the bank killed before and after each single message, when nothing is being stored.
func TestBankKilledBetweenMessages(t *testing.T) {
	for n := uint64(1); n <= total; n++ {
		synctest.Test(t, func(t *testing.T) {
			bank := &Bank{journal: memory.New()}
			if err := bank.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			killing := &killer{Bank: bank, at: n, ctx: t.Context}
			if _, err := Pay(t.Context(), memory.New(), killing, total); err != nil {
				t.Fatal(err)
			}
			checkBalance(t, bank)
		})
	}
}

// killer is a link that restarts the bank before and after it delivers a certain number.
type killer struct {
	*Bank
	at  uint64
	ctx func() context.Context
}

func (k *killer) Deliver(d delivery.Delivery[Deposit]) error {
	hit := d.Seq <= k.at && k.at < d.Seq+uint64(len(d.Bodies))
	if !hit {
		return k.Bank.Deliver(d)
	}
	k.at = 0
	return errors.Join(k.Restart(k.ctx()), k.Bank.Deliver(d), k.Restart(k.ctx()))
}

func ExampleLedger() {
	ctx := context.Background()
	ledger, err := OpenLedger(ctx, memory.New())
	if err != nil {
		panic(err)
	}
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[Deposit]{InOrder: true}, ledger.Handle)
	if err != nil {
		panic(err)
	}
	producer, err := delivery.NewProducerController(delivery.ProducerOptions[Deposit]{Consumer: consumer})
	if err != nil {
		panic(err)
	}
	for _, cents := range []int64{100, 20, 3} {
		if err := producer.Send(ctx, Deposit{"alice", cents}); err != nil {
			panic(err)
		}
	}
	balance, err := ledger.Balance(ctx, "alice")
	fmt.Println(balance, err)
	producer.Close()
	consumer.Close()
	<-producer.Stopped()
	<-consumer.Stopped()
	err = ledger.Close(ctx)
	fmt.Println(err)
	// Output:
	// 123 <nil>
	// <nil>
}
