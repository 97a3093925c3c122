package delivery_test

import (
	"context"
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
