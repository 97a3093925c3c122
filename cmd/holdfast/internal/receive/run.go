package receive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
)

// settlePatience is how long the command waits for answers to acknowledgements once it is to end.
const settlePatience = 10 * time.Second

// job is one run of the command.
type job struct {
	a     *cli.App
	f     *flags
	b     *connect.Broker
	queue string
	r     *holdfast.Receiver
	idle  *idle

	mu       sync.Mutex
	taken    int64 // messages received, or being waited for
	received int64
	acked    int64
	failed   int64 // commands that failed
	lost     int64 // leases lost
	unknown  int64 // acknowledgements without an answer
	err      error // why the command ends early
	running  map[holdfast.Receipt]context.CancelCauseFunc
}

// errIdle ends the waiting for messages.
var errIdle = errors.New("no message came")

func run(ctx context.Context, a *cli.App, f *flags, b *connect.Broker, queue string) error {
	j := &job{a: a, f: f, b: b, queue: queue, running: map[holdfast.Receipt]context.CancelCauseFunc{}}
	j.warnOfMissing(ctx)
	r, err := b.Queue(queue).NewReceiver(holdfast.ReceiverOptions{
		Visibility: time.Duration(f.visibility), Unbound: f.noAck, OnLost: j.onLost, Logger: a.Log})
	if err != nil {
		return cli.Flagged(err, map[string]string{"Visibility": "visibility", "visibility timeout": "visibility"})
	}
	j.r = r
	receiving, end := context.WithCancelCause(ctx)
	defer end(nil)
	j.idle = newIdle(b, time.Duration(f.wait), func() { end(errIdle) })
	hide := func() {}
	if !a.OutTerminal {
		hide = a.Err.Progress(j.progress)
	}
	if f.exec == "" {
		j.print(receiving, end)
	} else {
		j.execute(receiving, end)
	}
	hide()
	j.idle.stop()
	closing, cancelClose := a.Finish(ctx, settlePatience)
	defer cancelClose()
	if err := r.Close(closing); err != nil && j.err == nil {
		j.err = err
	}
	return j.report(ctx, context.Cause(receiving))
}

// missingPatience is how long the command waits for the broker to say whether the queue exists.
const missingPatience = 2 * time.Second

// warnOfMissing tells that the queue does not exist yet: its name may be mistyped. A broker that creates queues on use creates it with the
// receiver, which then waits for messages.
func (j *job) warnOfMissing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, missingPatience)
	defer cancel()
	if _, err := j.b.Queue(j.queue).Describe(ctx); errors.Is(err, holdfast.ErrNoQueue) {
		j.a.Say("queue %s: it did not exist before; waiting for messages to it", j.queue)
	}
}

// progress is what is shown to whoever watches.
func (j *job) progress() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("queue %s: %s received, %s acknowledged, %s", j.queue, cli.FormatCount(j.received), cli.FormatCount(j.acked), cli.Count(len(j.running), "running command"))
}

// take reserves up to n messages of those that --count leaves.
func (j *job) take(n int64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f.count > 0 {
		n = min(n, j.f.count-j.taken)
	}
	j.taken += n
	return n
}

// took says how many of the reserved messages have come.
func (j *job) took(reserved, came int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.taken -= reserved - came
	j.received += came
}

// fail ends the command with an error.
func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

// receive waits for messages. It returns none when there is nothing more to wait for.
func (j *job) receive(ctx context.Context, most int64) []*holdfast.Delivery {
	n := int64(0)
	if ctx.Err() == nil {
		n = j.take(most)
	}
	if n == 0 {
		return nil
	}
	ds, err := j.r.Receive(ctx, int(n))
	j.took(n, int64(len(ds)))
	if err != nil && ctx.Err() == nil {
		j.fail(err)
	}
	return ds
}

// settled counts what became of an acknowledgement.
func (j *job) settled(n int64, what string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil:
		j.acked += n
	case errors.Is(err, holdfast.ErrLeaseLost):
		j.lost += n
		j.a.Say("%s: %v; it may come again", what, err)
	default:
		j.unknown += n
		j.a.Say("%s: %v", what, err)
	}
}

// onLost stops the command that works on a message whose lease was lost.
func (j *job) onLost(r holdfast.Receipt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if cancel := j.running[r]; cancel != nil {
		cancel(holdfast.ErrLeaseLost)
	}
}

// report says how it went, and returns the error that the command ends with.
func (j *job) report(ctx context.Context, end error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.a.Err.Terminal() || j.failed+j.lost+j.unknown > 0 {
		j.a.Say("queue %s: %s received, %s acknowledged, %s failed, %s lost, %s unknown", j.queue,
			cli.FormatCount(j.received), cli.FormatCount(j.acked), cli.FormatCount(j.failed), cli.FormatCount(j.lost), cli.FormatCount(j.unknown))
	}
	var errs []error
	if j.unknown > 0 {
		errs = append(errs, fmt.Errorf("queue %s: %s: %w", j.queue, cli.Count(j.unknown, "acknowledgement"), holdfast.ErrUnknown))
	}
	switch {
	case j.err != nil:
		errs = append(errs, j.err)
	case ctx.Err() != nil:
		errs = append(errs, context.Cause(ctx))
	case errors.Is(end, errIdle) && j.received < j.f.count:
		errs = append(errs, fmt.Errorf("queue %s: %d of %d messages came, and none within the last %s", j.queue, j.received, j.f.count, cli.FormatDuration(time.Duration(j.f.wait))))
	case j.f.count > 0 && j.failed > 0:
		errs = append(errs, fmt.Errorf("queue %s: the command failed for %d of %d messages", j.queue, j.failed, j.received))
	}
	return errors.Join(errs...)
}

// idle notices that nothing has come, and nothing is being worked on, for some time in which the broker could be reached.
type idle struct {
	b     *connect.Broker
	limit time.Duration
	end   func()
	wg    sync.WaitGroup
	done  chan struct{}

	mu   sync.Mutex
	busy int
	last time.Time
}

// newIdle calls end once after limit; 0 means never.
func newIdle(b *connect.Broker, limit time.Duration, end func()) *idle {
	i := &idle{b: b, limit: limit, end: end, done: make(chan struct{}), last: time.Now()}
	if limit > 0 {
		i.wg.Go(i.watch)
	}
	return i
}

func (i *idle) watch() {
	t := time.NewTimer(i.limit)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-i.done:
			return
		}
		left := i.left()
		if left <= 0 {
			i.end()
			return
		}
		t.Reset(left)
	}
}

// left is how long to wait until it may be over.
func (i *idle) left() time.Duration {
	up, ok := i.b.UpSince()
	i.mu.Lock()
	defer i.mu.Unlock()
	if !ok || i.busy > 0 {
		return min(i.limit, 50*time.Millisecond)
	}
	if up.After(i.last) {
		i.last = up
	}
	return i.limit - time.Since(i.last)
}

// begin notes that messages came.
func (i *idle) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy++
}

// finish notes that they are dealt with.
func (i *idle) finish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy--
	i.last = time.Now()
}

func (i *idle) stop() {
	close(i.done)
	i.wg.Wait()
}
