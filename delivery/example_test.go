package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
)

// A minimal pair: one line a side.
func Example() {
	ctx := context.Background()
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[string]{}, func(ctx context.Context, name string) error {
		fmt.Println("hello", name)
		return nil // acknowledged
	})
	if err != nil {
		panic(err)
	}
	producer, err := delivery.NewProducerController(delivery.ProducerOptions[string]{Consumer: consumer})
	if err != nil {
		panic(err)
	}

	err = producer.Send(ctx, "world") // returns when it was handled
	fmt.Println("sent:", err)

	_ = producer.Shutdown(ctx)
	_ = consumer.Shutdown(ctx)
	<-producer.Stopped()
	<-consumer.Stopped()
	// Output:
	// hello world
	// sent: <nil>
}

// A network that loses half of everything, repeats a third and reorders all, and a handler that fails now and then: each
// message is handled successfully once.
func Example_lossyNetwork() {
	ctx := context.Background()
	handled, failed := map[int]int{}, 0
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[int]{}, func(ctx context.Context, n int) error {
		if n%10 == 0 && failed < 5 {
			failed++
			return errors.New("not now") // not acknowledged: it comes again
		}
		handled[n]++
		return nil
	})
	if err != nil {
		panic(err)
	}
	network := deliverytest.NewNetwork(42, deliverytest.Faults{Drop: 0.5, Duplicate: 0.3, MaxDelay: 3 * time.Millisecond})
	producer, err := delivery.NewProducerController(delivery.ProducerOptions[int]{
		Consumer:      deliverytest.Over(network, delivery.Link[int](consumer)),
		ResendTimeout: 10 * time.Millisecond, ResendCap: 40 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	for n := range 100 {
		if _, err := producer.Post(ctx, n); err != nil { // waits only while 16 are unconfirmed
			panic(err)
		}
	}
	err = producer.Shutdown(ctx) // waits for all confirmations

	once := 0
	for _, times := range handled {
		if times == 1 {
			once++
		}
	}
	fmt.Println(err, once, "of 100 handled once,", failed, "failures")
	consumer.Close()
	<-producer.Stopped()
	<-consumer.Stopped()
	// Output: <nil> 100 of 100 handled once, 5 failures
}

// What the handler knows about a message.
func ExampleMetadataOf() {
	ctx := context.Background()
	consumer, _ := delivery.NewConsumerController(delivery.ConsumerOptions[string]{}, func(ctx context.Context, body string) error {
		m, _ := delivery.MetadataOf(ctx)
		fmt.Println(m.ProducerID, m.Seq, body)
		return nil
	})
	producer, _ := delivery.NewProducerController(delivery.ProducerOptions[string]{Consumer: consumer, ProducerID: "clock"})
	_ = producer.Send(ctx, "tick")
	_ = producer.Send(ctx, "tock")
	producer.Close()
	consumer.Close()
	<-producer.Stopped()
	<-consumer.Stopped()
	// Output:
	// clock 1 tick
	// clock 2 tock
}

// One producer, many workers: each message goes to a worker that has asked for it.
func ExampleWorkPool() {
	ctx := context.Background()
	pool, _ := delivery.NewWorkPool[int](delivery.WorkPoolOptions{})
	total := make(chan int, 100)
	var workers []*delivery.ConsumerController[int]
	for range 3 {
		worker, _ := delivery.NewConsumerController(delivery.ConsumerOptions[int]{}, func(_ context.Context, n int) error {
			total <- n
			return nil
		})
		if _, err := pool.Join(worker, 4); err != nil {
			panic(err)
		}
		workers = append(workers, worker)
	}
	for n := range 100 {
		if _, err := pool.Post(ctx, n); err != nil {
			panic(err)
		}
	}
	err := pool.Shutdown(ctx)
	sum := 0
	for range 100 {
		sum += <-total
	}
	fmt.Println(err, sum)
	for _, w := range workers {
		w.Close()
		<-w.Stopped()
	}
	// Output: <nil> 4950
}
