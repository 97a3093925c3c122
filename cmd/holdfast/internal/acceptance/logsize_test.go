package acceptance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// What the directory of a journal may take: ten seconds after a load, and at any time.
const (
	smallDisk  = 128 * mib // or four times what lives
	neverAbove = 512 * mib
)

// logLoad is a load that leaves little alive. It returns when it is over.
type logLoad struct {
	name string
	n    int // full count, in the unit of run
	run  func(t *testing.T, q *holdfast.Queue, n, size int)
}

var logLoads = []logLoad{
	{"one leased for ever", 1_000_000, func(t *testing.T, q *holdfast.Queue, n, size int) {
		hold(t, q, 1, size)
		cycle(t, q, n, size)
	}},
	{"one in a hundred of a backlog stuck", 1_000_000, func(t *testing.T, q *holdfast.Queue, n, size int) {
		stick(t, q, 100_000, size)
		cycle(t, q, n, size)
	}},
	{"leases expire", 1_000_000, leasesExpire},
	{"nacks", 1_000_000, nacks},
	{"TTLs", 1_000_000, ttls},
	{"configurations", 300_000, configurations},
}

// G2, §4, §5: the log stays small, whatever is done often and whatever stays.
func TestLogStaysSmall(t *testing.T) {
	for i := range logLoads {
		load := &logLoads[i]
		t.Run(load.name, func(t *testing.T) { testLogSize(t, load, counts(load.n/20, load.n)) })
	}
}

func testLogSize(t *testing.T, load *logLoad, n int) {
	// Reduced counts have larger messages, so that the log would become too large all the same.
	size := counts(8<<10, 1<<10)
	s := serve(t)
	q := s.dial().Queue("q")
	watch := watchDisk(t, s.data)
	began := time.Now()
	load.run(t, q, n, size)
	took := time.Since(began)
	info := describe(t, q)
	limit := max(smallDisk, 4*int64(info.Stats.Bytes))
	var left int64
	after := within(t, 10*time.Second, "the directory is small again", func() bool {
		left = du(t, s.data)
		return left < limit
	})
	most := watch()
	t.Logf("%d in %v: at most %d MiB on disk, %d MiB %v after the end; %d messages of %d KiB live; %d MiB resident at most",
		n, took.Round(time.Millisecond), most/mib, left/mib, after.Round(time.Millisecond), info.Stats.Depth, info.Stats.Bytes>>10, s.peak()/mib)
	if most > neverAbove {
		t.Errorf("%d MiB on disk during the load, more than %d", most/mib, neverAbove/mib)
	}
}

// watchDisk looks at a folder until the returned function is called, which returns the most that it took.
func watchDisk(t *testing.T, dir string) func() int64 {
	var most atomic.Int64
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			most.Store(max(most.Load(), du(t, dir)))
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return sync.OnceValue(func() int64 {
		close(end)
		<-done
		return most.Load()
	})
}

// pattern makes a body that does not compress.
func pattern(size int) []byte {
	b := make([]byte, size)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

func plain(size int) func(int) holdfast.Message {
	m := holdfast.Message{Body: pattern(size)}
	return func(int) holdfast.Message { return m }
}

// hold sends n messages and leases them until the end of the test.
func hold(t *testing.T, q *holdfast.Queue, n, size int) {
	t.Helper()
	fill(t, q, n, plain(size))
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeReceiver(t, r) })
	for held := 0; held < n; {
		ds, err := r.Receive(t.Context(), n-held)
		if err != nil {
			t.Fatal(err)
		}
		held += len(ds)
	}
}

func closeReceiver(t *testing.T, r *holdfast.Receiver) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
}

// stick sends n messages and acknowledges all but one in a hundred, which stay leased.
func stick(t *testing.T, q *holdfast.Queue, n, size int) {
	t.Helper()
	size = min(size, 1<<10)
	fill(t, q, n, plain(size))
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeReceiver(t, r) })
	for got := 0; got < n; {
		ds, err := r.Receive(t.Context(), min(1000, n-got)) // and then it asks for nothing more
		if err != nil {
			t.Fatal(err)
		}
		var done []*holdfast.Delivery
		for _, d := range ds {
			if got++; got%100 != 0 {
				done = append(done, d)
			}
		}
		if err := r.Ack(t.Context(), done...); err != nil {
			t.Fatal(err)
		}
	}
}

// cycle sends, receives and acknowledges n messages, all at once. At most 16 MiB of them are in the queue.
func cycle(t *testing.T, q *holdfast.Queue, n, size int) {
	t.Helper()
	if err := q.Configure(t.Context(), queue.Config{MaxBytes: int64(describe(t, q).Stats.Bytes) + 16*mib}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled atomic.Int64
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(context.Context, *holdfast.Delivery) error {
			if handled.Add(1) == int64(n) {
				cancel()
			}
			return nil
		}, holdfast.ConsumeOptions{Workers: 2})
	}()
	snd, err := q.NewSender(holdfast.SenderOptions{MaxInFlightBytes: 8 * mib})
	if err != nil {
		t.Fatal(err)
	}
	m := holdfast.Message{Body: pattern(size)}
	for range n {
		if err := snd.SendAsync(t.Context(), m, func(_ holdfast.ID, err error) {
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := snd.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-consumed; err != nil {
		t.Fatal(err)
	}
}

// leasesExpire leases messages n times and lets the leases expire.
func leasesExpire(t *testing.T, q *holdfast.Queue, n, size int) {
	few := min(n/3, 20_000)
	fill(t, q, few, plain(min(size, 100)))
	r, err := q.NewReceiver(holdfast.ReceiverOptions{Visibility: queue.MinVisibility, Unbound: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReceiver(t, r)
	for got := 0; got < n; {
		ds, err := r.Receive(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		got += len(ds)
	}
	if s := describe(t, q).Stats; s.Depth != uint64(few) {
		t.Errorf("%d messages left of %d", s.Depth, few)
	}
}

// nacks receives and gives back n times.
func nacks(t *testing.T, q *holdfast.Queue, n, size int) {
	fill(t, q, 1000, plain(size))
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReceiver(t, r)
	for got := 0; got < n; {
		ds, err := r.Receive(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		got += len(ds)
		if err := r.Nack(t.Context(), 0, ds...); err != nil {
			t.Fatal(err)
		}
	}
}

// ttls sends n messages that expire.
func ttls(t *testing.T, q *holdfast.Queue, n, size int) {
	if err := q.Create(t.Context(), queue.Config{MaxMessages: 10_000}); err != nil { // so that the sender is not faster than the expiry
		t.Fatal(err)
	}
	m := holdfast.Message{Body: pattern(size), TTL: 100 * time.Millisecond}
	snd, err := q.NewSender(holdfast.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := snd.SendAsync(t.Context(), m, func(_ holdfast.ID, err error) {
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := snd.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "everything expired", func() bool { return describe(t, q).Stats.Depth == 0 })
}

// configurations changes the configuration n times.
func configurations(t *testing.T, q *holdfast.Queue, n, _ int) {
	if err := q.Create(t.Context(), queue.Config{}); err != nil {
		t.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && ctx.Err() == nil; i = next.Add(1) {
				if err := q.Configure(ctx, queue.Config{MaxBytes: 1<<30 + i}); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
