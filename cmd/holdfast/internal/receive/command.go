// Package receive is "holdfast receive".
package receive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/queue"
)

// flags are what the command line says.
type flags struct {
	connect    connect.Flags
	count      int64
	wait       cli.Duration
	workers    int
	exec       string
	output     cli.Choice
	noAck      bool
	visibility cli.Duration
}

// Command returns "holdfast receive".
func Command(a *cli.App) *cobra.Command {
	f := &flags{output: cli.Choice{Value: "body", Of: []string{"body", "raw", "json"}}}
	cmd := &cobra.Command{
		Use:   "receive QUEUE",
		Short: "Receive messages: print them, or run a command for each",
		Long: `Receive messages and print them, each acknowledged once it is written: the body and a line end (body), the bare body (raw),
or one JSON object a line (json), with body_base64 instead of body where it is not UTF-8.

With --exec, a shell runs CMD for each message instead, --workers at the same time, with the body on its standard input and in its
environment HOLDFAST_MSG_ID, HOLDFAST_QUEUE, HOLDFAST_DELIVERY (from 1), HOLDFAST_RECEIPT and HOLDFAST_HEADERS (a JSON object in the order of
the headers; HOLDFAST_HEADERS_BASE64, an array of pairs, is set too where one is not UTF-8). The message is acknowledged if CMD exits
with 0, else it comes again by the queue's retry policy. The lease is renewed while CMD runs.

It goes on until --count messages have come, until none has come for --wait (exit code 1 if --count was not reached), or until it is
interrupted: it then waits for running commands, and a second signal stops them. It never holds more messages than it prints or works on.

A queue that does not exist is made, unless the broker creates none, and the command says so: its name may be mistyped.

With --no-ack, messages are not acknowledged and their leases outlive the command: their receipts are printed, before the body and a
tab or as a member of the object, for "holdfast ack", "nack" and "extend".`,
		Example: `  holdfast receive orders
  holdfast receive orders --count 1 --wait 10s --output json
  holdfast receive orders --workers 8 --exec './handle-order'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(a, args[0]); err != nil {
				return cli.Usage(err)
			}
			return f.connect.With(cmd.Context(), a, func(ctx context.Context, b *connect.Broker) error {
				return run(ctx, a, f, b, args[0])
			})
		},
	}
	fs := cmd.Flags()
	f.connect.Register(fs)
	fs.Int64Var(&f.count, "count", 0, "end after so many messages were handed out, those that come again included; 0 means without end")
	fs.Var(&f.wait, "wait", "end when no message has come for this long; 0s means never")
	fs.IntVar(&f.workers, "workers", 1, "commands that run at the same time, with --exec")
	fs.StringVar(&f.exec, "exec", "", "shell `command` to run for each message")
	fs.Var(&f.output, "output", "how messages are printed")
	fs.BoolVar(&f.noAck, "no-ack", false, "print receipts instead of acknowledging")
	fs.Var(&f.visibility, "visibility", "how long messages are leased unless renewed, instead of as the queue says; 1s to 12h")
	return cmd
}

// check refuses what does not go together.
func (f *flags) check(a *cli.App, name string) error {
	errs := []error{queue.ValidName(name)}
	if f.count < 0 {
		errs = append(errs, fmt.Errorf("--count is %d, want 0 (without end) or more", f.count))
	}
	if f.workers < 1 || f.workers > 10_000 {
		errs = append(errs, fmt.Errorf("--workers is %d, want 1 to 10000", f.workers))
	}
	if v := time.Duration(f.visibility); v != 0 && (v < queue.MinVisibility || v > queue.MaxVisibility) {
		errs = append(errs, fmt.Errorf("--visibility is %s, want %s to %s", cli.FormatDuration(v), cli.FormatDuration(queue.MinVisibility), cli.FormatDuration(queue.MaxVisibility)))
	}
	if f.exec == "" && a.Source("workers") == cli.FromFlag {
		errs = append(errs, errors.New("--workers goes with --exec: it says how many commands run at the same time"))
	}
	if f.noAck && f.exec != "" {
		errs = append(errs, errors.New("--no-ack and --exec exclude each other: the command's exit code decides"))
	}
	if f.noAck && f.output.Value == "raw" {
		errs = append(errs, errors.New("--no-ack prints receipts, which --output raw has no place for: use body or json"))
	}
	if f.exec != "" && a.Source("output") == cli.FromFlag {
		errs = append(errs, errors.New("--output and --exec exclude each other: what is printed is the output of the command"))
	}
	return errors.Join(errs...)
}
