package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/rpc"
)

// consumerName is what the consumer of DeliverServe is called.
const consumerName = "bench"

func (p *running) consumer() (*delivery.ConsumerController[[]byte], error) {
	return delivery.NewConsumerController(delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw()}, func(context.Context, []byte) error { return nil })
}

// produce sends to a consumer as fast as the window lets it.
func (p *running) produce(ctx context.Context, o delivery.ProducerOptions[[]byte]) error {
	o.WindowSize = p.Window
	producer, err := delivery.NewProducerController(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sending, end := context.WithCancel(ctx)
	defer end()
	body := newBody(p.Payload)
	confirmed := func(err error) {
		if err != nil {
			cancel(err)
			return
		}
		p.count(1)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sending.Err() == nil {
			if err := producer.PostFunc(ctx, body, confirmed); err != nil {
				cancel(err)
				return
			}
		}
	}()
	p.watch(ctx, end)
	<-ended
	err = producer.Shutdown(ctx)
	<-producer.Stopped()
	return errors.Join(context.Cause(ctx), err)
}

// deliver is a part of kind Deliver.
func (p *running) deliver(ctx context.Context) error {
	consumer, err := p.consumer()
	if err != nil {
		return err
	}
	err = p.produce(ctx, delivery.ProducerOptions[[]byte]{Consumer: consumer})
	consumer.Close()
	<-consumer.Stopped()
	return err
}

// deliverSend is a part of kind DeliverSend.
func (p *running) deliverSend(ctx context.Context) error {
	c, err := client.Dial(ctx, client.Options{Addrs: []string{p.Addr}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close()
	link := c.Consumer(consumerName)
	defer link.Close()
	return p.produce(ctx, delivery.ProducerOptions[[]byte]{Remote: link, Codec: delivery.Raw()})
}

// deliverServe is a part of kind DeliverServe.
func (p *running) deliverServe(ctx context.Context, l net.Listener) error {
	consumer, err := p.consumer()
	if err != nil {
		return err
	}
	server, err := rpc.NewServer(nil, rpc.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = server.AddConsumer(consumerName, consumer.Remote())
	}
	if err != nil {
		consumer.Close()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.watch(ctx, cancel)
	server.Close()
	consumer.Close()
	<-consumer.Stopped()
	if err := <-served; !errors.Is(err, holdfast.ErrClosed) {
		return err
	}
	return nil
}
