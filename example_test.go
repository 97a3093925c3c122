package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
)

// complaints ends an example whose queue is misused.
type complaints struct{}

func (complaints) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// openQueue stands for broker.Broker.Queue or client.Client.Queue, which the examples of those packages show.
func openQueue(name string) (q *holdfast.Queue, done func()) {
	n := startNaive(complaints{}, nil)
	q = holdfast.NewQueue(name, n, holdfast.Options{Logger: quiet})
	return q, func() {
		if err := q.Close(context.Background()); err != nil {
			panic(err)
		}
		n.close()
	}
}

func ExampleQueue_Send() {
	q, done := openQueue("orders")
	defer done()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	id, err := q.Send(ctx, holdfast.Message{Body: []byte("an order"), Key: "customer 7"})
	switch {
	case err == nil:
		fmt.Println("stored as number", id.Seq)
	case errors.Is(err, holdfast.ErrUnknown):
		fmt.Println("stored or not:", err)
	default:
		fmt.Println("not stored:", err)
	}
	// Output: stored as number 1
}

func ExampleQueue_Consume() {
	q, done := openQueue("orders")
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := q.SendBatch(ctx, []holdfast.Message{{Body: []byte("good")}, {Body: []byte("early")}, {Body: []byte("last")}}); err != nil {
		panic(err)
	}

	err := q.Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
		fmt.Printf("%s, attempt %d\n", d.Body, d.Attempt)
		switch {
		case string(d.Body) == "early" && d.Attempt == 1:
			return holdfast.RetryAfter(10*time.Millisecond, errors.New("not yet"))
		case string(d.Body) == "early":
			cancel() // ends Consume, which waits for what is under way
		}
		return nil // acknowledges the message
	}, holdfast.ConsumeOptions{Workers: 1})
	fmt.Println("ended:", err)
	// Output:
	// good, attempt 1
	// early, attempt 1
	// last, attempt 1
	// early, attempt 2
	// ended: <nil>
}

// A sender of its own keeps many messages on their way without a goroutine for each.
func ExampleSender_SendAsync() {
	q, done := openQueue("orders")
	defer done()
	ctx := context.Background()
	s, err := q.NewSender(holdfast.SenderOptions{MaxInFlight: 1000})
	if err != nil {
		panic(err)
	}
	stored := 0
	for i := range 10_000 {
		// It blocks only while a thousand messages are on their way.
		err := s.SendAsync(ctx, holdfast.Message{Body: fmt.Append(nil, i)}, func(_ holdfast.ID, err error) {
			if err == nil {
				stored++
			}
		})
		if err != nil {
			panic(err)
		}
	}
	if err := s.Close(ctx); err != nil { // waits for all outcomes
		panic(err)
	}
	fmt.Println(stored, "stored")
	// Output: 10000 stored
}

// A receiver takes messages when the program wants them, and settles them when it likes.
func ExampleReceiver() {
	q, done := openQueue("orders")
	defer done()
	ctx := context.Background()
	if _, err := q.Send(ctx, holdfast.Message{Body: []byte("an order")}); err != nil {
		panic(err)
	}

	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		panic(err)
	}
	ds, err := r.Receive(ctx, 10) // one to ten messages
	if err != nil {
		panic(err)
	}
	for _, d := range ds {
		fmt.Printf("%s\n", d.Body)
	}
	fmt.Println("acknowledged:", r.Ack(ctx, ds...))
	fmt.Println("closed:", r.Close(ctx)) // gives back what was not settled
	// Output:
	// an order
	// acknowledged: <nil>
	// closed: <nil>
}

// Order is what the messages of a typed queue hold.
type Order struct {
	Number   int
	Customer string
}

func ExampleTyped() {
	q, done := openQueue("orders")
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	orders := holdfast.Typed(q, holdfast.JSON[Order]())
	if _, err := orders.Send(ctx, Order{Number: 1, Customer: "Ada"}); err != nil {
		panic(err)
	}
	err := orders.Consume(ctx, func(ctx context.Context, o Order) error {
		fmt.Println("order", o.Number, "of", o.Customer)
		cancel()
		return nil
	}, holdfast.ConsumeOptions{})
	fmt.Println("ended:", err)
	// Output:
	// order 1 of Ada
	// ended: <nil>
}
