// Package queuecmd is "holdfast queue": the administrative calls.
package queuecmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/queue"
)

// group is the queue command.
type group struct {
	a *cli.App
	c connect.Flags
}

// Command returns "holdfast queue" with its subcommands.
func Command(a *cli.App) *cobra.Command {
	g := &group{a: a}
	cmd := &cobra.Command{
		Use: "queue", Short: "Create, look at, change and delete queues",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.c.Register(cmd.PersistentFlags())
	cmd.AddCommand(g.create(), g.update(), g.list(), g.describe(), g.watch(), g.peek(),
		g.each("pause QUEUE...", "Stop handing out messages; sends go on", "", "paused", func(ctx context.Context, ad holdfast.Admin, name string) error {
			return ad.Pause(ctx, name, true)
		}),
		g.each("resume QUEUE...", "Go on handing out messages", "", "resumed", func(ctx context.Context, ad holdfast.Admin, name string) error {
			return ad.Pause(ctx, name, false)
		}),
		g.each("delete QUEUE...", "Delete queues with all their messages", "Delete queue %s with all its messages?", "deleted", func(ctx context.Context, ad holdfast.Admin, name string) error {
			return ad.Delete(ctx, name)
		}),
		g.purge(), g.redrive())
	return cmd
}

// names checks the names of queues on the command line.
func names(args []string) error {
	var errs []error
	for _, name := range args {
		errs = append(errs, queue.ValidName(name))
	}
	return cli.Usage(errors.Join(errs...))
}

// run connects, and calls f with the time that the user gives it.
func (g *group) run(ctx context.Context, args []string, f func(ctx context.Context, ad holdfast.Admin) error) error {
	if err := names(args); err != nil {
		return err
	}
	return g.c.With(ctx, g.a, func(ctx context.Context, b *connect.Broker) error {
		ctx, cancel := g.c.Limit(ctx)
		defer cancel()
		return f(ctx, b.Admin())
	})
}

// look is run for calls that change nothing: given up, they have no outcome that could be unknown.
func (g *group) look(ctx context.Context, args []string, f func(ctx context.Context, ad holdfast.Admin) error) error {
	return g.run(ctx, args, func(limited context.Context, ad holdfast.Admin) error {
		return cli.Read(given(limited, f(limited, ad)))
	})
}

// given replaces the error of a call that was given up by why it was.
func given(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, holdfast.ErrUnknown) {
		return context.Cause(ctx)
	}
	return err
}

// each makes a command that does the same with each queue of its arguments. With a question it asks before.
func (g *group) each(use, short, question, done string, f func(ctx context.Context, ad holdfast.Admin, name string) error) *cobra.Command {
	yes := new(bool)
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.run(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				for _, name := range args {
					if question != "" {
						if err := g.confirm(*yes, question, name); err != nil {
							return err
						}
					}
					if err := f(ctx, ad, name); err != nil {
						return err
					}
					g.a.Say("queue %s %s", name, done)
				}
				return nil
			})
		},
	}
	if question != "" {
		cmd.Flags().BoolVar(yes, "yes", false, "do not ask")
	}
	return cmd
}

// confirm asks before something that cannot be undone.
func (g *group) confirm(yes bool, question, name string) error {
	if yes {
		return nil
	}
	if !g.a.InTerminal || !g.a.Err.Terminal() {
		return cli.Usagef("queue %s: this cannot be undone, and there is no terminal to ask at: confirm it with --yes", name)
	}
	if _, err := fmt.Fprintf(g.a.Err, question+" [y/N] ", name); err != nil {
		return fmt.Errorf("ask about queue %s: %w", name, err)
	}
	line, err := bufio.NewReader(g.a.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || (answer != "y" && answer != "yes") {
		return fmt.Errorf("queue %s: not confirmed, nothing was changed", name)
	}
	return nil
}

func (g *group) purge() *cobra.Command {
	yes := new(bool)
	cmd := &cobra.Command{
		Use: "purge QUEUE...", Short: "Delete all messages that were stored before, those in receivers' hands too", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.run(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				for _, name := range args {
					if err := g.confirm(*yes, "Delete all messages of queue %s?", name); err != nil {
						return err
					}
					n, err := ad.Purge(ctx, name)
					if err != nil {
						return err
					}
					if err := g.count(name, "purged", n); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask")
	return cmd
}

// count says how many messages something was done with: the number is data.
func (g *group) count(name, done string, n uint64) error {
	g.a.Say("queue %s: %s %s", name, cli.Count(n, "message"), done)
	_, err := fmt.Fprintln(g.a.Out, n)
	return err
}

func (g *group) redrive() *cobra.Command {
	var to string
	var limit int
	cmd := &cobra.Command{
		Use: "redrive QUEUE", Short: "Move dead letters back to where they came from, and make parked messages ready",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return cli.Usagef("--limit is %d, want 0 (all) or more", limit)
			}
			if to != "" {
				if err := queue.ValidName(to); err != nil {
					return cli.Flagged(err, map[string]string{"queue name": "to"})
				}
			}
			return g.run(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				n, err := ad.Redrive(ctx, args[0], to, limit)
				if err != nil {
					return err
				}
				return g.count(args[0], "set on their way", n)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`queue` to move them to, instead of where each came from")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many; 0 means all")
	return cmd
}
