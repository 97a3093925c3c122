// Package demo is "holdfast demo": a broker, a sender, a receiver, two kills and their recoveries, told as they happen, with an account
// at the end.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
	"github.com/holdfastmq/holdfast/queue"
)

const (
	queueName = "demo"
	// slow is how long the receiver works on a message, so that some are in its hands when the broker dies.
	slow = 3 * time.Millisecond
	// visibility is how long the queue leaves a message to a receiver before it hands it out again.
	visibility = 2 * time.Second
)

// Options are how the story is told.
type Options struct {
	// Rate is how many messages a second are sent, 1 to 100,000.
	Rate int
	// Keep leaves the folder with the broker's data and log behind.
	Keep bool
	// Second is how long a second of the story takes.
	Second time.Duration
	// Binary is the program that runs as the broker.
	Binary string
}

// Command returns "holdfast demo".
func Command(a *cli.App) *cobra.Command {
	o := Options{Second: time.Second}
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch a broker being killed and recovering, and see that nothing is lost",
		Long: `Run a broker as a child process, in a folder of its own under the system's folder for temporary files, with a sender and a receiver beside it.
The broker is killed with SIGKILL twice, in the middle of the work. At the end, every message that was acknowledged to the sender
must have been received, and none that was never sent. It exits with 1 if that is not so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rate < 1 || o.Rate > 100_000 {
				return cli.Usagef("--rate is %d, want 1 to 100000", o.Rate)
			}
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			o.Binary = binary
			return Run(cmd.Context(), a, o)
		},
	}
	cmd.Flags().IntVar(&o.Rate, "rate", 400, "messages a second that are sent")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the folder with the broker's data and log behind")
	return cmd
}

// story is one run of the demonstration.
type story struct {
	a     *cli.App
	o     Options
	dir   string
	addr  string
	log   *os.File // of the brokers
	began time.Time
	l     *ledger

	mu     sync.Mutex
	broker *proc.Process
}

// tell writes a line of the story.
func (s *story) tell(format string, args ...any) {
	// Whoever does not listen misses the story and nothing else.
	_, _ = fmt.Fprintf(s.a.Out, "%5.1fs  %s\n", time.Since(s.began).Seconds()/s.o.Second.Seconds(), fmt.Sprintf(format, args...))
}

// Run tells the story.
func Run(ctx context.Context, a *cli.App, o Options) (err error) {
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demonstration: %w", err)
	}
	s := &story{a: a, o: o, dir: dir, addr: "unix:" + filepath.Join(dir, "broker.sock"), began: time.Now(), l: newLedger()}
	if s.log, err = os.Create(filepath.Join(dir, "broker.log")); err != nil {
		return fmt.Errorf("make the broker's log: %w", err)
	}
	defer func() {
		err = errors.Join(err, s.log.Close())
		switch {
		case err != nil && !errors.Is(err, cli.ErrInterrupted):
			a.Say("the broker's data and log are in %s", dir)
		case o.Keep:
			s.tell("the broker's data and log are in %s", dir)
		default:
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	err = s.play(ctx)
	if b := s.current(); b != nil {
		err = errors.Join(err, b.Kill())
	}
	return err
}

func (s *story) current() *proc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broker
}

// start starts a broker and waits until it answers.
func (s *story) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	b, err := proc.Start(s.o.Binary, []string{
		"serve", "--journal", journals.DefaultScheme + ":" + filepath.Join(s.dir, "data"), "--listen", s.addr, "--http", ""}, s.log)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.broker = b
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = b.AwaitBroker(ctx, s.addr)
	return time.Since(began), err
}

// kill kills the broker, and starts it again after a while.
func (s *story) kill(ctx context.Context) error {
	b := s.current()
	if err := b.Kill(); err != nil {
		return err
	}
	sent, stored, got := s.l.now()
	s.tell("KILL -9: the broker, process %d, is gone; %d messages are unanswered, %d stored and not received", b.PID(), sent-stored, max(stored-got, 0))
	if err := s.pause(ctx, 1.5); err != nil {
		return err
	}
	took, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.tell("the broker is up again, process %d, after %d ms; what it was handing out when it died comes again within %v", s.current().PID(), took.Milliseconds(), visibility)
	return nil
}

// pause lets seconds of the story pass.
func (s *story) pause(ctx context.Context, seconds float64) error {
	t := time.NewTimer(time.Duration(seconds * float64(s.o.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// play plays the story.
func (s *story) play(ctx context.Context) error {
	took, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.tell("a broker is up, process %d, after %d ms; its journal is in %s", s.current().PID(), took.Milliseconds(), s.dir)
	c, err := client.Dial(ctx, client.Options{Addrs: []string{s.addr}, MaxBackoff: time.Second, Logger: s.a.Log})
	if err != nil {
		return err
	}
	defer c.Close()
	q := c.Queue(queueName)
	if err := q.Create(ctx, queue.Config{VisibilityTimeout: visibility}); err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	sending, stopSending := context.WithCancel(ctx)
	receiving, stopReceiving := context.WithCancel(ctx)
	defer work.Wait()
	defer stopReceiving()
	defer stopSending()
	sent := make(chan error, 1)
	work.Go(func() { sent <- s.send(sending, q) })
	work.Go(func() {
		if err := s.receive(receiving, q); err != nil {
			cancel(err)
		}
	})
	work.Go(func() { s.narrate(receiving) })

	s.tell("a sender sends %d messages a second; a receiver has two workers that take %v for each", s.o.Rate, slow)
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return s.pause(ctx, 3.4) }, s.kill,
		func(ctx context.Context) error { return s.pause(ctx, 3) }, s.kill,
		func(ctx context.Context) error { return s.pause(ctx, 2) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	stopSending()
	if err := <-sent; err != nil {
		return err
	}
	n, stored, _ := s.l.now()
	s.tell("the sender is done: %d messages sent, %d acknowledged", n, stored)
	if err := s.drain(ctx); err != nil {
		return err
	}
	stopReceiving()
	work.Wait()
	return s.end(ctx, q)
}

// drain waits until the receiver has got everything.
func (s *story) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !s.l.complete() {
		if err := s.pause(ctx, 0.05); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil // the account says what is missing
			}
			return err
		}
	}
	return nil
}

// end stops the broker and gives the account.
func (s *story) end(ctx context.Context, q *holdfast.Queue) error {
	info, err := q.Describe(ctx)
	if err != nil {
		return err
	}
	text, right := s.l.verdict()
	s.tell("%s", text)
	if depth := info.Stats.Depth; depth > 0 {
		right = false
		s.tell("%d messages are left in the queue, and there should be none", depth)
	}
	if !right {
		return errors.New("the account is wrong")
	}
	s.tell("nothing lost")
	return nil
}

// narrate tells each second how it stands.
func (s *story) narrate(ctx context.Context) {
	var lastStored, lastGot int
	for s.pause(ctx, 1) == nil {
		_, stored, got := s.l.now()
		s.tell("acknowledged %6d (+%d)   received %6d (+%d)", stored, stored-lastStored, got, got-lastGot)
		lastStored, lastGot = stored, got
	}
}

// send sends numbered messages until ctx ends, and waits for the outcome of each.
func (s *story) send(ctx context.Context, q *holdfast.Queue) error {
	sender, err := q.NewSender(holdfast.SenderOptions{Logger: s.a.Log, OnWait: func(waits bool, _ string) {
		if waits {
			s.tell("the sender waits for the broker")
		} else {
			s.tell("the sender goes on: what was unanswered is sent again under the same numbers")
		}
	}})
	if err != nil {
		return err
	}
	t := time.NewTicker(s.o.Second / time.Duration(s.o.Rate))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			n := s.l.next()
			m := holdfast.Message{Body: strconv.AppendInt(nil, int64(n), 10)}
			if err := sender.SendAsync(ctx, m, func(_ holdfast.ID, err error) { s.l.outcome(n, err) }); err != nil {
				s.l.outcome(n, err)
				if ctx.Err() == nil {
					return err
				}
			}
			continue
		case <-ctx.Done():
		}
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return sender.Close(rest)
	}
}

// receive works on messages until ctx ends.
func (s *story) receive(ctx context.Context, q *holdfast.Queue) error {
	return q.Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
		n, err := strconv.Atoi(string(d.Body))
		if err != nil {
			n = -1 // nothing like it was sent
		}
		s.l.received(n)
		return s.pause(ctx, slow.Seconds())
	}, holdfast.ConsumeOptions{Workers: 2, Logger: s.a.Log})
}
