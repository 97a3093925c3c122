package delivery_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
)

// "A million distinct producer ids cost at most the budget: heap flat after the first 1,024, no more than one warning a
// minute." In virtual time, ten thousand of them a second; the healthy producer among them is handled once for each
// of its messages.
func TestMillionProducers(t *testing.T) {
	total := 1_000_000
	if !soak() {
		total = 100_000
	}
	synctest.Test(t, func(t *testing.T) {
		l, to := &logs{}, &collector{}
		evicted := 0
		handled := 0
		c := newConsumer(t, delivery.ConsumerOptions[string]{Logger: l.logger(), OnEvict: func(n int) { evicted += n }},
			func(ctx context.Context, _ string) error {
				if m, _ := delivery.MetadataOf(ctx); m.ProducerID == "healthy" {
					handled++
				}
				return nil
			})
		healthy := newProducer(t, delivery.ProducerOptions[string]{Consumer: c, ProducerID: "healthy"})
		sent := 0
		var base uint64
		for i := range total {
			_ = c.Deliver(envelope(fmt.Sprint("flood-", i), "i", 1, 1, to, "x"))
			if i%1000 == 999 {
				if err := healthy.Send(t.Context(), "y"); err != nil {
					t.Fatal(err)
				}
				sent++
				to.take()
				time.Sleep(100 * time.Millisecond)
			}
			if i == 4095 {
				base = heap()
			}
		}
		synctest.Wait()
		if n := c.TrackedProducers(); n != delivery.DefaultMaxProducers {
			t.Errorf("%d producers tracked", n)
		}
		if handled != sent {
			t.Errorf("healthy producer: %d sent, %d handled", sent, handled)
		}
		if want := total + 1 - delivery.DefaultMaxProducers; evicted < want || uint64(evicted) != c.Stats().Evicted {
			t.Errorf("%d evicted, %d counted, want at least %d", evicted, c.Stats().Evicted, want)
		}
		if grown := int64(heap()) - int64(base); grown > 1<<20 {
			t.Errorf("the heap grew by %d bytes after the first 4096 producers", grown)
		}
		minutes := total/1000/10/60 + 1
		if n := len(l.lines("producers forgotten")); n < 1 || n > minutes {
			t.Errorf("%d warnings in %d minutes", n, minutes)
		}
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// G4: what waits is bounded whatever a producer sends; the rest comes again and is handled once.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := map[int]int{}
		l := &logs{}
		c := newConsumer(t, delivery.ConsumerOptions[int]{MaxWaitingPerProducer: 10, MaxWaiting: 15, Logger: l.logger()}, func(_ context.Context, n int) error {
			handled[n]++
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		p := newProducer(t, delivery.ProducerOptions[int]{Consumer: c, WindowSize: 100})
		for i := range 100 {
			if _, err := p.Post(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if st := c.Stats(); st.Unsettled != 10 || st.NoRoom != 90 {
			t.Errorf("%+v", st)
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if handled[i] != 1 {
				t.Errorf("%d handled %d times", i, handled[i])
			}
		}
		if n := len(l.lines("too much waits")); n < 1 || n > 3 {
			t.Errorf("%d warnings", n)
		}
	})
}
