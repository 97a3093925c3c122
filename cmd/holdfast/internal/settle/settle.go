// Package settle is "holdfast ack", "nack" and "extend": what can be done with the receipts of "holdfast receive --no-ack".
package settle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/queue"
)

// batch is how many receipts go in one call.
const batch = 1000

const help = `
A receipt of "-" reads further ones from standard input, one a line; what stands behind a tab there is left out, so that the output of
"holdfast receive --no-ack" can be given. Each receipt is printed with what became of it: done, gone (the message was acknowledged or
deleted before) or lost (the lease has ended: the message may be in other hands). It exits with 1 if a lease was lost.`

// Ack returns "holdfast ack".
func Ack(a *cli.App) *cobra.Command {
	return command(a, "ack", "Acknowledge messages by their receipts: they are deleted", holdfast.SettleAck, nil)
}

// Nack returns "holdfast nack".
func Nack(a *cli.App) *cobra.Command {
	return command(a, "nack", "Give messages back as failed by their receipts", holdfast.SettleNack, func(cmd *cobra.Command) func() time.Duration {
		var d cli.Duration
		cmd.Flags().Var(&d, "delay", "hand them out again after this time, instead of as the queue's retry policy says")
		return func() time.Duration {
			if cmd.Flags().Changed("delay") {
				return time.Duration(d)
			}
			return -1
		}
	})
}

// Extend returns "holdfast extend".
func Extend(a *cli.App) *cobra.Command {
	return command(a, "extend", "Extend the leases of messages by their receipts", holdfast.SettleExtend, func(cmd *cobra.Command) func() time.Duration {
		var d cli.Duration
		cmd.Flags().Var(&d, "by", "let the leases end this long from now, instead of after the queue's visibility timeout")
		return func() time.Duration { return time.Duration(d) }
	})
}

func command(a *cli.App, name, short string, op holdfast.SettleOp, more func(*cobra.Command) func() time.Duration) *cobra.Command {
	var c connect.Flags
	span := func() time.Duration { return 0 }
	cmd := &cobra.Command{
		Use: name + " QUEUE RECEIPT...", Short: short, Long: short + "." + help, Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := queue.ValidName(args[0]); err != nil {
				return cli.Usage(err)
			}
			s := &settler{a: a, c: &c, queue: args[0], op: op, d: span()}
			if err := s.parse(args[1:]); err != nil {
				return cli.Usage(err)
			}
			return c.With(cmd.Context(), a, s.run)
		},
	}
	c.Register(cmd.Flags())
	if more != nil {
		span = more(cmd)
	}
	return cmd
}

// settler is one run of such a command.
type settler struct {
	a        *cli.App
	c        *connect.Flags
	queue    string
	op       holdfast.SettleOp
	d        time.Duration
	receipts []holdfast.Receipt
}

// parse reads all receipts before anything is done with one.
func (s *settler) parse(args []string) error {
	var errs []error
	add := func(text string) {
		r, err := holdfast.ParseReceipt(text)
		if err != nil {
			errs = append(errs, err)
			return
		}
		s.receipts = append(s.receipts, r)
	}
	for _, arg := range args {
		if arg != "-" {
			add(arg)
			continue
		}
		in := bufio.NewReader(s.a.In)
		for {
			line, err := in.ReadString('\n')
			text, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if text != "" {
				add(text)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read receipts: %w", err)
			}
		}
	}
	return errors.Join(errs...)
}

func (s *settler) run(ctx context.Context, b *connect.Broker) error {
	lost := 0
	for rest := s.receipts; len(rest) > 0; {
		part := rest[:min(batch, len(rest))]
		rest = rest[len(part):]
		limited, cancel := s.c.Limit(ctx)
		outcomes, err := b.Admin().Settle(limited, s.queue, s.op, part, s.d)
		cancel()
		if err != nil {
			return err
		}
		for _, r := range part {
			what := resultOf(outcomes, r)
			if what == "lost" {
				lost++
			}
			if _, err := fmt.Fprintf(s.a.Out, "%s\t%s\n", r, what); err != nil {
				return err
			}
		}
	}
	if lost > 0 {
		return fmt.Errorf("queue %s: %d of %d receipts: %w", s.queue, lost, len(s.receipts), holdfast.ErrLeaseLost)
	}
	return nil
}

// resultOf tells what became of a receipt. Where the outcomes do not mention it, everything went well.
func resultOf(outcomes []queue.Outcome, r holdfast.Receipt) string {
	for _, o := range outcomes {
		if r.Lease < o.Lease || r.Lease-o.Lease >= o.Count || r.Seq-o.Seq != r.Lease-o.Lease {
			continue
		}
		switch o.Result {
		case queue.AckGone:
			return "gone"
		case queue.AckLost:
			return "lost"
		}
	}
	return "done"
}
