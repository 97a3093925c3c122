package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/rpc"
)

// receive is the warehouse: it handles orders until ctx ends, and writes each into the ledger.
func receive(ctx context.Context, address, ledger string, work time.Duration) (err error) {
	out, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[Order]{InOrder: true}, func(ctx context.Context, o Order) error {
		pause := time.NewTimer(work)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		m, _ := delivery.MetadataOf(ctx)
		// The effect. Where it is to be there exactly once, store m.Incarnation and m.Seq together with it.
		_, err := fmt.Fprintln(out, o.Number, o.Item, m.ProducerID, m.Incarnation, m.Seq)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { consumer.Close(); <-consumer.Stopped() }()

	listener, err := rpc.Listen(ctx, address)
	if err != nil {
		return err
	}
	server, err := rpc.NewServer(nil, rpc.Options{}) // there are no queues here
	if err == nil {
		err = server.AddConsumer(consumerName, consumer.Remote())
	}
	if err != nil {
		listener.Close()
		return err
	}
	fmt.Println("listening on", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// In this order nothing is handled again afterwards: what was accepted is handled and acknowledged, then connections end.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(consumer.Shutdown(grace), server.Shutdown(grace))
	if end := <-served; !errors.Is(end, holdfast.ErrClosed) {
		err = errors.Join(err, end)
	}
	return err
}
