package broker_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// meanwhile is a journal whose owner does something just before metas are read for the first time.
type meanwhile struct {
	journal.Journal
	once sync.Once
	do   func()
}

func (m *meanwhile) Open(ctx context.Context, stream string) (journal.Reader, error) {
	r, err := m.Journal.Open(ctx, stream)
	return meanwhileReader{r, m}, err
}

type meanwhileReader struct {
	journal.Reader
	m *meanwhile
}

func (r meanwhileReader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	r.m.once.Do(r.m.do)
	return r.Reader.ReadMeta(ctx, from, to)
}

// The owner makes a snapshot, and discards what it stands for, after the reader has looked for snapshots and before it reads events: no message is lost
// sight of. A copy of the stream would lack its body.
func TestLiveRecordsBesideDiscards(t *testing.T) {
	for _, earlier := range []int{0, 7} { // messages in an earlier snapshot
		t.Run(fmt.Sprint(earlier), func(t *testing.T) {
			j := memory.New()
			open := func() *broker.Broker {
				b, err := broker.Open(t.Context(), j, broker.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			send := func(b *broker.Broker, n int) {
				for range n {
					if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: []byte("body")}); err != nil {
						t.Fatal(err)
					}
				}
			}
			shut := func(b *broker.Broker) {
				if err := b.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			b := open()
			if earlier > 0 {
				send(b, earlier)
				shut(b)
				b = open()
			}
			send(b, 5)
			// Two snapshots: the events behind the one before the last are kept.
			twice := func() {
				for range 2 {
					shut(b)
					b = open()
					send(b, 1)
				}
				shut(b)
			}
			m := &meanwhile{Journal: j, do: twice}
			live, err := broker.LiveRecords(t.Context(), m, "queue/q")
			if err != nil || len(live) != earlier+7 {
				t.Errorf("%d records with bodies: %v, want %d (%v)", len(live), live, earlier+7, err)
			}
			r, err := j.Open(t.Context(), "queue/q")
			if err != nil {
				t.Fatal(err)
			}
			if info, err := r.Info(t.Context()); err != nil || info.Low <= uint64(earlier+5) {
				t.Fatalf("nothing was discarded: %+v (%v)", info, err)
			}

			b = open()
			m = &meanwhile{Journal: j, do: twice}
			v, err := broker.Verify(t.Context(), m, "queue/q", nil)
			if err != nil || len(v.Faults) > 0 || v.Messages < uint64(earlier+7) {
				t.Errorf("%+v (%v)", v, err)
			}
		})
	}
}
