package queuecmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/queue"
)

// configFlags are the flags that say how a queue is to be. Those that are not given change nothing.
type configFlags struct {
	visibility, retryFirst, retryCap, retention, delay, dedup cli.Duration
	maxDeliveries                                             int
	deadLetter                                                string
	maxMessages                                               int64
	maxBytes                                                  cli.Size
	overflow, durability                                      cli.Choice
}

func (f *configFlags) register(fs *pflag.FlagSet) {
	*f = configFlags{
		visibility: cli.Duration(queue.DefaultVisibilityTimeout), retryFirst: cli.Duration(queue.DefaultRetryFirst),
		retryCap: cli.Duration(queue.DefaultRetryCap), dedup: cli.Duration(queue.DefaultDedupWindow),
		overflow:   cli.Choice{Value: string(queue.OverflowBlock), Of: []string{"block", "reject", "drop-oldest"}},
		durability: cli.Choice{Value: string(queue.DurabilitySynced), Of: []string{"synced", "buffered"}},
	}
	fs.Var(&f.visibility, "visibility", "how long a receiver holds a message unless it renews it, 1s to 12h")
	fs.IntVar(&f.maxDeliveries, "max-deliveries", 0, "failed deliveries after which a message goes to the dead-letter queue, or is parked; 0 means no limit")
	fs.StringVar(&f.deadLetter, "dead-letter", "", "`queue` for messages over --max-deliveries; empty for none")
	fs.Var(&f.retryFirst, "retry-first", "delay before the second delivery of a failed message, doubled for each further one; 0s means none")
	fs.Var(&f.retryCap, "retry-cap", "largest delay before a failed message comes again")
	fs.Var(&f.retention, "retention", "let every message expire after this time; 0s means never")
	fs.Int64Var(&f.maxMessages, "max-messages", 0, "messages that the queue holds at most; 0 means no limit")
	fs.Var(&f.maxBytes, "max-bytes", "bytes that the queue holds at most; 0 means no limit")
	fs.Var(&f.overflow, "overflow", "what a send to a full queue does: wait, fail, or push out the oldest ready messages")
	fs.Var(&f.durability, "durability", "synced: acknowledged sends are on stable storage; buffered: a crash of the machine may lose the last ones")
	fs.Var(&f.delay, "default-delay", "hold back messages that say nothing themselves")
	fs.Var(&f.dedup, "dedup-window", "how long the dedup id of a message is remembered")
}

// apply changes what was given, and tells whether that was anything.
func (f *configFlags) apply(cfg *queue.Config, fs *pflag.FlagSet) (given bool) {
	for name, set := range map[string]func(){
		"visibility":     func() { cfg.VisibilityTimeout = time.Duration(f.visibility) },
		"max-deliveries": func() { cfg.MaxDeliveries = f.maxDeliveries },
		"dead-letter":    func() { cfg.DeadLetter = f.deadLetter },
		"retry-first": func() {
			if cfg.RetryFirst = time.Duration(f.retryFirst); cfg.RetryFirst == 0 {
				cfg.RetryFirst = queue.Unlimited
			}
		},
		"retry-cap":     func() { cfg.RetryCap = time.Duration(f.retryCap) },
		"retention":     func() { cfg.Retention = time.Duration(f.retention) },
		"max-messages":  func() { cfg.MaxMessages = f.maxMessages },
		"max-bytes":     func() { cfg.MaxBytes = int64(f.maxBytes) },
		"overflow":      func() { cfg.Overflow = queue.Overflow(f.overflow.Value) },
		"durability":    func() { cfg.Durability = queue.Durability(f.durability.Value) },
		"default-delay": func() { cfg.DefaultDelay = time.Duration(f.delay) },
		"dedup-window":  func() { cfg.DedupWindow = time.Duration(f.dedup) },
	} {
		if fs.Changed(name) {
			set()
			given = true
		}
	}
	return given
}

// flagOf are the flags whose names are not those of their fields with dashes.
var flagOf = map[string]string{"visibility_timeout": "visibility"}

// warnOfDeadLetter tells that a dead-letter queue that was named does not exist: its name may be mistyped.
func (g *group) warnOfDeadLetter(ctx context.Context, ad holdfast.Admin, name string) error {
	if name == "" {
		return nil
	}
	_, err := ad.Describe(ctx, name)
	if errors.Is(err, holdfast.ErrNoQueue) {
		g.a.Say("there is no queue %s yet, to which dead letters are to go: it comes into being with the first of them, unless the broker creates no queues on use", name)
	}
	return nil
}

func (g *group) create() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use: "create QUEUE...", Short: "Create queues",
		Long: "Create queues. It is an error if one exists with another configuration, and none if it exists with this one.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var cfg queue.Config
			f.apply(&cfg, cmd.Flags())
			if err := cfg.Validate(); err != nil {
				return cli.Flagged(err, flagOf)
			}
			g.c.CreateStore()
			return g.run(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				for _, name := range args {
					if err := ad.Create(ctx, name, cfg); err != nil {
						return err
					}
					g.a.Say("queue %s created", name)
				}
				return g.warnOfDeadLetter(ctx, ad, cfg.DeadLetter)
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (g *group) update() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use: "update QUEUE...", Short: "Change the configuration of queues while they are in use",
		Long: "Change the configuration of queues while they are in use. What no flag names stays as it is.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !f.apply(new(queue.Config), cmd.Flags()) {
				return cli.Usagef("there is nothing to change: no flag says what")
			}
			return g.run(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				for _, name := range args {
					info, err := ad.Describe(ctx, name)
					if err != nil {
						return err
					}
					f.apply(&info.Config, cmd.Flags())
					if err := info.Config.Validate(); err != nil {
						return cli.Flagged(err, flagOf)
					}
					if err := ad.Configure(ctx, name, info.Config); err != nil {
						return err
					}
					g.a.Say("queue %s updated", name)
				}
				return g.warnOfDeadLetter(ctx, ad, f.deadLetter)
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}
