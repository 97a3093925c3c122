package persistent_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// counter is an actor whose work costs as little as can be: what is measured is the actor.
type counter struct {
	persistent.Base[*frame, *frame]
	seen, stored uint64
	until        uint64
	done         chan struct{}
}

// frame is a command that is an event, of many messages in one body.
type frame struct {
	count uint64
	body  []byte
	reply func(error)
}

func (c *counter) Command(a *persistent.Context[*frame], f *frame) {
	if err := a.PersistAsync(f); err != nil {
		panic(err)
	}
	if f.reply != nil {
		a.After(f.reply)
	}
}

func (c *counter) Apply(_ uint64, _ int64, f *frame) { c.seen += f.count }

func (c *counter) Stored(_ *persistent.Context[*frame], h *journal.Header) {
	c.stored += h.Count
	if c.stored == c.until {
		close(c.done)
	}
}

type frameCodec struct{}

func (frameCodec) AppendMeta(dst []byte, f *frame) ([]byte, error) {
	return binary.AppendUvarint(dst, f.count), nil
}
func (frameCodec) DecodeMeta(b []byte) (*frame, error) { return &frame{}, nil }
func (frameCodec) Seqs(f *frame) uint64                { return f.count }
func (frameCodec) AppendBody(dst [][]byte, f *frame) [][]byte {
	if f.body == nil {
		return dst
	}
	return append(dst, f.body)
}

// discarding is a memory journal that forgets what is stored, so that the benchmark does not measure its growth.
type discarding struct{ journal.Journal }

func (j discarding) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	st, err := j.Journal.Acquire(ctx, name)
	return discardingStream{st}, err
}

type discardingStream struct{ journal.Stream }

func (s discardingStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	if err := s.Stream.Append(ctx, after, rec); err != nil {
		return err
	}
	if err := s.DiscardBodies(ctx, []journal.Range{{From: rec.First, To: rec.Last()}}); err != nil {
		return err
	}
	return s.DiscardMeta(ctx, rec.Last()+1)
}

func openCounter(b *testing.B, until uint64) (*persistent.Actor[*frame, *frame], *counter) {
	b.Helper()
	c := &counter{until: until, done: make(chan struct{})}
	a, err := persistent.Open(b.Context(), discarding{memory.New()}, "counter", c, frameCodec{}, quiet(persistent.Options{SnapshotEvery: persistent.Never}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return a, c
}

// BenchmarkPush is small commands that persist, given without waiting.
func BenchmarkPush(b *testing.B) {
	b.ReportAllocs()
	a, c := openCounter(b, uint64(b.N))
	f := &frame{count: 1}
	for range b.N {
		if err := a.Push(f); err != nil {
			b.Fatal(err)
		}
	}
	<-c.done
}

// BenchmarkTell is the same through the bounded mailbox, from two goroutines.
func BenchmarkTell(b *testing.B) {
	b.ReportAllocs()
	a, c := openCounter(b, uint64(b.N))
	f := &frame{count: 1}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := a.Tell(b.Context(), f); err != nil {
				b.Error(err)
				return
			}
		}
	})
	<-c.done
}

// BenchmarkFrames is commands of 512 messages of 100 bytes each, at most 64 of which are not stored: what a queue does.
func BenchmarkFrames(b *testing.B) {
	const messages, window = 512, 64
	b.ReportAllocs()
	b.SetBytes(messages * 100)
	a, c := openCounter(b, uint64(b.N)*messages)
	credit := make(chan struct{}, window)
	f := &frame{count: messages, body: make([]byte, messages*100), reply: func(error) { <-credit }}
	for range b.N {
		credit <- struct{}{}
		if err := a.Push(f); err != nil {
			b.Fatal(err)
		}
	}
	<-c.done
	b.ReportMetric(float64(b.N)*messages/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkRoundTrip is one caller that waits for each of its commands to be stored.
func BenchmarkRoundTrip(b *testing.B) {
	b.ReportAllocs()
	a, _ := openCounter(b, 0)
	stored := make(chan struct{})
	f := &frame{count: 1, reply: func(error) { stored <- struct{}{} }}
	for range b.N {
		if err := a.Push(f); err != nil {
			b.Fatal(err)
		}
		<-stored
	}
}

// BenchmarkChannel is the same hand-over and back through plain channels and two goroutines, to compare with.
func BenchmarkChannel(b *testing.B) {
	b.ReportAllocs()
	mailbox, work, done, stored := make(chan *frame), make(chan *frame), make(chan *frame), make(chan struct{})
	go func() {
		for f := range work {
			done <- f
		}
	}()
	go func() {
		for f := range mailbox {
			work <- f
			<-done
			stored <- struct{}{}
		}
		close(work)
	}()
	f := &frame{}
	for range b.N {
		mailbox <- f
		<-stored
	}
	close(mailbox)
}
