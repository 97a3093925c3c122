package broker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// A program with queues of its own, without a server. With another journal than the one in memory they survive the process.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	j := memory.New()
	defer func() { _ = j.Close() }()
	b, err := broker.Open(ctx, j, broker.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		panic(err)
	}
	defer func() { _ = b.Close(context.Background()) }()

	q := b.Queue("orders")
	if _, err := q.Send(ctx, holdfast.Message{Body: []byte("one coffee")}); err != nil {
		panic(err)
	}
	err = q.Consume(ctx, func(_ context.Context, d *holdfast.Delivery) error {
		fmt.Printf("%s\n", d.Body)
		cancel() // enough for today
		return nil
	}, holdfast.ConsumeOptions{Workers: 4})
	fmt.Println("ended:", err)
	// Output:
	// one coffee
	// ended: <nil>
}
