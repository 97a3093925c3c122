package rpc_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/rpc"
)

// Messages of 100 bytes from a producer to a consumer over a connection, handled and acknowledged one by one, beside a plain
// channel between two goroutines. Both ends are in this process and share its processors.
func BenchmarkDelivery(b *testing.B) {
	body := make([]byte, 100)
	b.Run("channel", func(b *testing.B) {
		b.ReportAllocs()
		ch, done := make(chan []byte, 1024), make(chan struct{})
		go func() {
			for range b.N {
				<-ch
			}
			close(done)
		}()
		start := cpu(b)
		for range b.N {
			ch <- body
		}
		<-done
		perMessage(b, start, uint64(b.N))
	})
	for _, network := range []string{"tcp", "unix"} {
		for _, window := range []int{1, 1024, 16_384} {
			b.Run(fmt.Sprintf("%s/window=%d", network, window), func(b *testing.B) { benchDelivery(b, network, window, body) })
		}
	}
}

func benchDelivery(b *testing.B, network string, window int, body []byte) {
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = "unix:" + filepath.Join(b.TempDir(), "s")
	}
	l, err := rpc.Listen(b.Context(), addr)
	if err != nil {
		b.Fatal(err)
	}
	if network == "tcp" {
		addr = l.Addr().String()
	}
	s, err := rpc.NewServer(nil, rpc.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan struct{})
	go func() { _ = s.Serve(l); close(served) }()
	defer func() { s.Close(); <-served }()
	handled := 0
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw(), Logger: quiet, MaxWaitingPerProducer: window}, func(context.Context, []byte) error {
		handled++
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { consumer.Close(); <-consumer.Stopped() }()
	if err := s.AddConsumer("bench", consumer.Remote()); err != nil {
		b.Fatal(err)
	}
	c, err := client.Dial(b.Context(), client.Options{Addrs: []string{addr}, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	p, err := delivery.NewProducerController(delivery.ProducerOptions[[]byte]{
		Remote: c.Consumer("bench"), Codec: delivery.Raw(), Logger: quiet, WindowSize: window, ResendTimeout: time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { p.Close(); <-p.Stopped() }()
	if err := p.Send(b.Context(), body); err != nil { // the stream is open
		b.Fatal(err)
	}
	confirmed := 0
	b.ReportAllocs()
	b.ResetTimer()
	start := cpu(b)
	for range b.N {
		if err := p.PostFunc(b.Context(), body, func(err error) {
			if err == nil {
				confirmed++
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	perMessage(b, start, uint64(b.N))
	p.Close()
	<-p.Stopped()
	if handled != b.N+1 || confirmed != b.N {
		b.Fatalf("%d sent, %d handled, %d confirmed, %+v", b.N, handled, confirmed, p.Stats())
	}
}
