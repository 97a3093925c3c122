package jetstream

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// A message that is already deleted is deleted: so a cleaner whose request has lost its answer, or that does what its predecessor did, goes on with
// its other tasks, and space comes back (design §4: discarding gives back space).
func TestDeletedTwice(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			j := mustOpen(t, streamURL(server, newStream(t, server), fmt.Sprintf("sync=always&replicas=%d", replicas)), quiet())
			seq, err := j.c.publish(ctx, message{subject: j.names.confirm()})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := j.c.deleteMessage(ctx, seq); err != nil {
					t.Errorf("delete message %d: %v", seq, err)
				}
			}
			if m, err := j.c.get(ctx, getRequest{Seq: seq}); m != nil || err != nil {
				t.Errorf("message %d is there: %+v (%v)", seq, m, err)
			}

			w := acquire(t, j, "orders")
			for range 4 {
				if err := w.append(ctx, w.next(1, []byte("body"))); err != nil {
					t.Fatal(err)
				}
			}
			// Someone has deleted one of the bodies before the owner does.
			refs, err := w.s.(*owner).list(ctx, j.names.bodies("orders"))
			if err != nil || len(refs) != 4 {
				t.Fatalf("%v (%v)", refs, err)
			}
			if err := j.c.purge(ctx, refs[1].subject, ^uint64(0)); err != nil {
				t.Fatal(err)
			}
			if err := w.s.DiscardBodies(ctx, []journal.Range{{From: 1, To: 3}}); err != nil {
				t.Fatal(err)
			}
			for {
				refs, err := w.s.(*owner).list(ctx, j.names.bodies("orders"))
				if err == nil && len(refs) == 1 && refs[0].first == 4 {
					break
				}
				if !pause(ctx, 10*time.Millisecond) {
					t.Fatalf("bodies that were discarded stay: %v (%v)", refs, err)
				}
			}
		})
	}
}

// G11: several brokers that are started at the same time open the journal, whoever makes it.
func TestOpenedAtOnce(t *testing.T) {
	url := streamURL(server, newStream(t, server), "sync=always")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				j, err := Open(ctx, url, quiet())
				if err != nil {
					t.Error(err)
					return
				}
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
