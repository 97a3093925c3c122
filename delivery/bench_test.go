package delivery_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastmq/holdfast/delivery"
)

// The hand-over of a 100-byte message between two goroutines, by a plain channel and by a producer and a consumer
// in one process, each message confirmed.
func BenchmarkHandOver(b *testing.B) {
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
		for range b.N {
			ch <- body
		}
		<-done
	})
	b.Run("delivery/func", func(b *testing.B) {
		benchDelivery(b, func(p *delivery.ProducerController[[]byte], ctx context.Context, confirm func(error)) error {
			return p.PostFunc(ctx, body, confirm)
		})
	})
	b.Run("delivery/handle", func(b *testing.B) {
		benchDelivery(b, func(p *delivery.ProducerController[[]byte], ctx context.Context, confirm func(error)) error {
			_, err := p.Post(ctx, body)
			return err
		})
	})
}

// The same with ten senders, and over the form that carries bytes.
func BenchmarkHandOverMore(b *testing.B) {
	body := make([]byte, 100)
	b.Run("ten producers", func(b *testing.B) {
		b.ReportAllocs()
		var handled atomic.Int64
		consumer := newConsumer(b, delivery.ConsumerOptions[[]byte]{}, func(context.Context, []byte) error {
			handled.Add(1)
			return nil
		})
		var senders sync.WaitGroup
		for range 10 {
			producer := newProducer(b, delivery.ProducerOptions[[]byte]{Consumer: consumer, WindowSize: 1024})
			senders.Go(func() {
				for range b.N/10 + 1 {
					if err := producer.PostFunc(context.Background(), body, nil); err != nil {
						b.Error(err)
					}
				}
				if err := producer.Shutdown(context.Background()); err != nil {
					b.Error(err)
				}
			})
		}
		senders.Wait()
	})
	b.Run("bytes", func(b *testing.B) {
		b.ReportAllocs()
		raw := delivery.Raw()
		consumer := newConsumer(b, delivery.ConsumerOptions[[]byte]{Codec: raw}, func(context.Context, []byte) error { return nil })
		producer := newProducer(b, delivery.ProducerOptions[[]byte]{Remote: consumer.Remote(), Codec: raw, WindowSize: 1024})
		for range b.N {
			if err := producer.PostFunc(context.Background(), body, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := producer.Shutdown(context.Background()); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("one at a time", func(b *testing.B) {
		b.ReportAllocs()
		consumer := newConsumer(b, delivery.ConsumerOptions[[]byte]{}, func(context.Context, []byte) error { return nil })
		producer := newProducer(b, delivery.ProducerOptions[[]byte]{Consumer: consumer})
		for b.Loop() {
			if err := producer.Send(context.Background(), body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchDelivery(b *testing.B, post func(*delivery.ProducerController[[]byte], context.Context, func(error)) error) {
	b.ReportAllocs()
	handled := 0
	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions[[]byte]{}, func(context.Context, []byte) error {
		handled++
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer consumer.Close()
	producer, err := delivery.NewProducerController(delivery.ProducerOptions[[]byte]{Consumer: consumer, WindowSize: 1024})
	if err != nil {
		b.Fatal(err)
	}
	confirmed := 0
	confirm := func(err error) {
		if err == nil {
			confirmed++
		}
	}
	ctx := context.Background()
	b.ResetTimer()
	for range b.N {
		if err := post(producer, ctx, confirm); err != nil {
			b.Fatal(err)
		}
	}
	if err := producer.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	<-producer.Stopped()
	st := producer.Stats()
	if int(st.Confirmed) != b.N || handled != b.N || confirmed != 0 && confirmed != b.N {
		b.Fatalf("%d sent, %d handled, %+v", b.N, handled, st)
	}
	b.ReportMetric(float64(st.Retransmitted), "retransmitted")
}
