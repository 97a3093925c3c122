package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/queue"
)

// A deleted queue is gone; one of that name later has new ids.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		id := send(t, b.Queue("q"), "one")[0]
		h, _, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 0)
		if err := b.Admin().Delete(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		h.until(t, "the end of the receiver", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.broken != nil })
		if !errors.Is(h.broken, holdfast.ErrDeleted) || !errors.Is(h.broken, holdfast.ErrNoQueue) {
			t.Errorf("receiver ended with %v", h.broken)
		}
		if _, err := b.Admin().Describe(t.Context(), "q"); !errors.Is(err, holdfast.ErrNoQueue) {
			t.Errorf("describe: %v", err)
		}
		if again := send(t, b.Queue("q"), "two")[0]; again.Stream == id.Stream || again.Seq <= id.Seq {
			t.Errorf("id %v after %v", again, id)
		}
		shut(t, b)
	})
}

// Senders and consumers that are open when their queue is deleted end with ErrDeleted. None makes a new queue of that name, not even in the
// moment between the end of the streams and the drop; one that comes by then waits, and gets a new queue.
func TestDeleteEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		b := open(t, j, Options{})
		q := b.Queue("q")
		if err := q.Create(t.Context(), queue.Config{MaxMessages: 1}); err != nil {
			t.Fatal(err)
		}
		send(t, q, "takes the room")
		s, err := q.NewSender(holdfast.SenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan error, 3)
		go func() { _, err := s.Send(context.Background(), holdfast.Message{Body: []byte("waits")}); ends <- err }()
		go func() {
			_, err := q.Send(context.Background(), holdfast.Message{Body: []byte("waits too")})
			ends <- err
		}()
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			ends <- q.Consume(context.Background(), func(context.Context, *holdfast.Delivery) error { return nil }, holdfast.ConsumeOptions{})
		}()
		synctest.Wait()

		dropping, drop := make(chan struct{}), make(chan struct{})
		j.SetPlan(func(c fault.Call) fault.Action {
			if c.Op == fault.Drop {
				close(dropping)
				<-drop
			}
			return fault.Action{}
		})
		deleted := make(chan error, 1)
		go func() { deleted <- b.Admin().Delete(context.Background(), "q") }()
		<-dropping
		late := make(chan error, 1)
		go func() { late <- q.Configure(context.Background(), queue.Config{}) }()
		created := make(chan error, 1)
		go func() { created <- q.Create(context.Background(), queue.Config{MaxMessages: 7}) }()
		synctest.Wait()
		if n := len(late) + len(created); n > 0 {
			t.Errorf("%d calls came back while the queue was being deleted", n)
		}
		close(drop)
		if err := <-deleted; err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := <-ends; !errors.Is(err, holdfast.ErrDeleted) || errors.Is(err, holdfast.ErrUnknown) {
				t.Errorf("a stream of the deleted queue ended with %v", err)
			} else if strings.Count(err.Error(), `queue "q"`) != 1 {
				t.Errorf("a stream of the deleted queue ended with %q, which names it more or less than once", err)
			}
		}
		if err := <-created; err != nil {
			t.Errorf("create: %v", err)
		}
		if err := <-late; err != nil && !errors.Is(err, holdfast.ErrNoQueue) { // before or after
			t.Errorf("configure: %v", err)
		}
		if _, err := s.Send(t.Context(), holdfast.Message{}); !errors.Is(err, holdfast.ErrDeleted) {
			t.Errorf("another send: %v", err)
		}
		if d := describe(t, b, "q"); d.Stats.Depth != 0 || d.Stats.Sent != 0 {
			t.Errorf("the new queue has %d messages, %d sent", d.Stats.Depth, d.Stats.Sent)
		}
		send(t, q, "to the new one")
		if err := errors.Join(s.Close(t.Context()), q.Close(t.Context())); err != nil {
			t.Error(err)
		}
		shut(t, b)
	})
}

// G11: what needs a queue says that there is none, and makes none.
func TestNoSuchQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		send(t, b.Queue("q"), "one")
		ad := b.Admin()
		_, redrive := ad.Redrive(t.Context(), "typo", "", 0)
		_, target := ad.Redrive(t.Context(), "q", "typo", 0)
		_, purge := ad.Purge(t.Context(), "typo")
		_, peek := ad.Peek(t.Context(), "typo", holdfast.PeekOptions{})
		for what, err := range map[string]error{
			"configure": ad.Configure(t.Context(), "typo", queue.Config{}), "redrive": redrive, "redrive to": target, "purge": purge, "peek": peek,
			"pause": ad.Pause(t.Context(), "typo", true), "delete": ad.Delete(t.Context(), "typo"),
		} {
			if !errors.Is(err, holdfast.ErrNoQueue) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all, err := ad.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("queues %+v, %v", all, err)
		}
		shut(t, b)
	})
}
