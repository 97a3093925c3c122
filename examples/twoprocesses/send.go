package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/durable"
	"github.com/holdfastmq/holdfast/journal/segment"
)

// send is the shop: it sends orders up to number count, and says which are confirmed.
func send(ctx context.Context, address, store string, from, count uint64) (err error) {
	c, err := client.Dial(ctx, client.Options{Addrs: []string{address}, Lazy: true})
	if err != nil {
		return err
	}
	defer c.Close()
	options := delivery.ProducerOptions[Order]{
		Remote: c.Consumer(consumerName), ProducerID: "shop", WindowSize: 64, ResendTimeout: 200 * time.Millisecond, ResendCap: 2 * time.Second,
	}
	if store != "" {
		j, failed := segment.Open(store, segment.Options{})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, j.Close()) }()
		if options.Journal, err = durable.Open(ctx, j, "shop", durable.Options{ProducerID: "shop"}); err != nil {
			return err
		}
	}
	p, err := delivery.NewProducerController(options)
	if err != nil {
		return err
	}
	defer func() { p.Close(); <-p.Stopped() }()
	if store != "" {
		from = p.Stats().NextSeq // order n is message n, so the store knows which one is next
	}
	fmt.Println("begins at", from)
	for n := from; n <= count; n++ {
		// It waits while 64 are unconfirmed.
		err := p.PostFunc(ctx, Order{Number: n, Item: fmt.Sprintf("item-%d", n%7)}, func(err error) {
			if err == nil {
				fmt.Println("confirmed", n)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := p.Shutdown(ctx); err != nil {
		return err
	}
	fmt.Println("all confirmed")
	return nil
}
