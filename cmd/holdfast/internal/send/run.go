package send

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/queue"
)

const (
	// answerPatience is how long an interrupted command waits for answers to what it has sent.
	answerPatience = 2 * time.Second
	// resolvePatience is how long it then asks what is stored.
	resolvePatience = 5 * time.Second
)

// job is one run of the command.
type job struct {
	a     *cli.App
	f     *flags
	b     *connect.Broker
	queue string
	in    *input
	s     *holdfast.Sender
	t     *tracker
	// base is how many messages at the beginning of the input were left out, because they are stored already.
	base uint64
}

func run(ctx context.Context, a *cli.App, f *flags, b *connect.Broker, queue string, bodies []string) error {
	in, err := newInput(f, a.In, bodies)
	if err != nil {
		return err
	}
	j := &job{a: a, f: f, b: b, queue: queue, in: in}
	if err := j.begin(ctx); err != nil {
		return cli.Cause(ctx, err)
	}
	j.t = newTracker(a.Out)
	began := time.Now()
	stop := func() {}
	if !a.OutTerminal {
		stop = a.Err.Progress(func() string { return j.progress(began) })
	}
	inErr := j.send(ctx)
	unknown := j.finish(ctx)
	stop()
	outErr := j.t.close()
	return j.report(ctx, inErr, outErr, unknown)
}

// begin makes the sender, and finds out where a named one goes on.
func (j *job) begin(ctx context.Context) error {
	o := holdfast.SenderOptions{
		ProducerID: j.f.producer, Strict: true, NoWait: j.f.noWait, Logger: j.a.Log,
		OnWait: func(waits bool, reason string) {
			j.b.StorageFull(waits && strings.Contains(reason, queue.WaitsStorageFull))
			switch {
			case waits:
				j.a.Say("queue %s: waiting to send: %s", j.queue, reason)
			case ctx.Err() == nil: // else the wait has ended because it was given up
				j.a.Say("queue %s: sending goes on", j.queue)
			}
		},
	}
	if j.f.producer == "" {
		s, err := j.b.Queue(j.queue).NewSender(o)
		j.s = s
		return err
	}
	// The first message is part of what the input is known by, so that other input under the same name is not taken for sent.
	first, err := j.in.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the first message: %w", err)
	}
	empty := err != nil
	o.Incarnation = fingerprint(j.in.unit, &first)
	if j.s, err = j.b.Queue(j.queue).NewSender(o); err != nil {
		return err
	}
	next, err := j.s.Resume(ctx)
	if err != nil {
		return errors.Join(err, j.s.Close(ctx))
	}
	j.base = next - 1
	if j.base > 0 {
		were, they := "were", "they are"
		if j.base == 1 {
			were, they = "was", "it is"
		}
		j.a.Say("queue %s: %s of this input %s stored before, under the producer id %s; %s left out", j.queue, cli.Count(j.base, "message"), were, j.f.producer, they)
	}
	rest, skip := j.in.next, j.base
	j.in.next = func() (holdfast.Message, error) {
		if empty && skip > 0 {
			return first, j.shorter(0)
		}
		if empty {
			return first, io.EOF
		}
		if skip == 0 {
			j.in.next = rest
			return first, nil
		}
		for at := uint64(1); at < skip; at++ {
			if m, err := rest(); errors.Is(err, io.EOF) {
				return m, j.shorter(at)
			} else if err != nil {
				return m, err
			}
		}
		j.in.next = rest
		return rest()
	}
	return nil
}

// shorter is the error of an input that has only n messages, fewer than are stored of what it seemed to be.
func (j *job) shorter(n uint64) error {
	return cli.Usagef("%w: it has %s, and %s are stored under the producer id %s: nothing was sent; give other input an id of its own",
		errOtherInput, cli.Count(n, j.in.unit), cli.FormatCount(j.base), j.f.producer)
}

var errOtherInput = errors.New("this is not the input that was sent before")

// fingerprint tells one input from another by its first message and by what its messages are made of.
func fingerprint(unit string, m *holdfast.Message) string {
	b, err := json.Marshal(struct {
		Unit    string
		Message *holdfast.Message
	}{unit, m})
	if err != nil {
		panic(err) // it has nothing but strings, bytes and numbers
	}
	sum := sha256.Sum256(b)
	return "cli-" + hex.EncodeToString(sum[:16])
}

// item is a message, or the end of the input.
type item struct {
	m   holdfast.Message
	err error
}

// send sends until the input ends, or there is a reason not to go on. It returns the error of the input.
func (j *job) send(ctx context.Context) error {
	next := func() (holdfast.Message, error) { return j.in.next() }
	if j.in.reads {
		// Reading may block; it is left to itself when the sending ends before.
		items := make(chan item, 64)
		done := make(chan struct{})
		defer close(done)
		go func() {
			for {
				m, err := j.in.next()
				select {
				case items <- item{m, err}:
				case <-done:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		next = func() (holdfast.Message, error) {
			select {
			case i := <-items:
				return i.m, i.err
			case <-ctx.Done():
			case <-j.t.stop:
			}
			return holdfast.Message{}, errStopped
		}
	}
	for n := int64(0); j.f.count == 0 || n < j.f.count || j.f.repeat; n++ {
		if ctx.Err() != nil || j.stopped() {
			return nil
		}
		if j.in.wait != nil && j.in.wait(ctx) != nil {
			return nil
		}
		m, err := next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errStopped):
			return nil
		case errors.Is(err, errOtherInput):
			return err
		case err != nil:
			return fmt.Errorf("read %s %d: %w", j.in.unit, j.base+uint64(n)+1, err)
		}
		k := j.t.add()
		if err := j.s.SendAsync(ctx, m, func(id holdfast.ID, err error) { j.t.settle(k, id, err) }); err != nil {
			j.t.settle(k, holdfast.ID{}, err)
			return nil
		}
	}
	return nil
}

var errStopped = errors.New("stopped")

func (j *job) stopped() bool {
	select {
	case <-j.t.stop:
		return true
	default:
		return false
	}
}

// finish waits for the outcomes of all messages, and returns how many remain unknown. Those that are unknown because the wait was
// given up are asked for: the queue knows what it has of a producer.
func (j *job) finish(ctx context.Context) uint64 {
	if !j.stopped() {
		_ = j.s.Flush(ctx) // what it did not wait for is seen below
	}
	patience, cancel := j.a.Finish(ctx, answerPatience)
	defer cancel()
	_ = j.s.Close(patience)
	isUnknown := func(err error) bool { return errors.Is(err, holdfast.ErrUnknown) }
	unknown := j.t.unknown(isUnknown)
	if unknown == 0 {
		return 0
	}
	ask, cancel := j.a.Finish(ctx, resolvePatience)
	defer cancel()
	link, opened, err := j.b.OpenSender(ask, j.queue, holdfast.SenderConfig{Producer: j.s.Producer()}, silent{})
	if err != nil {
		j.a.Log.Warn("cannot ask the queue what is stored", "queue", j.queue, "error", err)
		return unknown
	}
	link.Close(j.f.producer == "")
	_, stored, _ := j.t.counts()
	switch {
	case opened.Resume > j.base+stored:
		j.t.resolve(opened.Resume-1-j.base, errNotSent)
		return 0
	case opened.Resume == 0 && j.base+stored == 0: // it has never heard of the producer
		j.t.resolve(0, errNotSent)
		return 0
	}
	return unknown
}

var errNotSent = errors.New("not stored: the sending was ended before")

// silent is the events of a sender that only asks.
type silent struct{}

func (silent) Accepted(holdfast.Accepted) {}
func (silent) Refused(uint64, error)      {}
func (silent) Waits(bool, string)         {}
func (silent) Broken(error)               {}

func (j *job) progress(began time.Time) string {
	_, stored, _ := j.t.counts()
	return fmt.Sprintf("queue %s: %s stored, %.0f/s", j.queue, cli.FormatCount(stored), float64(stored)/max(time.Since(began).Seconds(), 0.001))
}

// report says what is stored and where to resume, if that is not everything, and returns the error that the command ends with.
func (j *job) report(ctx context.Context, inErr, outErr error, unknown uint64) error {
	if errors.Is(inErr, errOtherInput) {
		return inErr
	}
	added, stored, failed := j.t.counts()
	interrupted := ctx.Err() != nil
	if inErr == nil && outErr == nil && !interrupted && stored == added {
		if j.a.Err.Terminal() && added > 1 {
			j.a.Say("queue %s: %s stored", j.queue, cli.Count(stored, "message"))
		}
		return nil
	}
	last := j.base + stored // shown without commas: it may be given to another command
	switch {
	case last == 0:
		j.a.Say("queue %s: nothing is stored", j.queue)
	default:
		j.a.Say("queue %s: stored: %s 1 to %d", j.queue, j.in.unit, last)
	}
	switch {
	case unknown > 0:
		j.a.Say("queue %s: unknown: %s %d to %d may be stored or not", j.queue, j.in.unit, last+1, j.base+added)
		fallthrough
	case stored < added || inErr != nil || outErr != nil || !j.f.repeat:
		if j.f.producer != "" {
			j.a.Say("queue %s: to go on, run the same command with the same input again", j.queue)
		} else {
			j.a.Say("queue %s: to go on, send again from %s %d on", j.queue, j.in.unit, last+1)
		}
	}
	var errs []error
	if unknown > 0 {
		errs = append(errs, fmt.Errorf("queue %s: %s: %w", j.queue, cli.Count(unknown, "message"), holdfast.ErrUnknown))
	}
	if interrupted {
		return errors.Join(append(errs, context.Cause(ctx))...)
	}
	if failed != nil && unknown == 0 {
		errs = append(errs, fmt.Errorf("%s %d: %w", j.in.unit, last+1, failed))
	}
	if outErr != nil {
		errs = append(errs, fmt.Errorf("write the ids: %w", outErr))
	}
	return errors.Join(append(errs, inErr)...)
}
