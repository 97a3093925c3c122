package queuecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
)

// watcher is a running "queue watch".
type watcher struct {
	g     *group
	names []string // empty: all queues
	json  bool

	before map[string]holdfast.QueueInfo
	at     time.Time
	lines  int
}

func (g *group) watch() *cobra.Command {
	every := cli.Duration(time.Second)
	var count int
	var form *cli.Choice
	cmd := &cobra.Command{
		Use: "watch [QUEUE...]", Short: "Show again and again how full queues are, and how fast they move",
		Long: `Show again and again how full queues are, and how many messages a second are sent, delivered and leave. Without a name, all
queues are shown. It ends after --count times, or when it is interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 0 {
				return cli.Usagef("--count is %d, want 0 (without end) or more", count)
			}
			if every <= 0 {
				return cli.Usagef("--every is 0, want more")
			}
			if err := names(args); err != nil {
				return err
			}
			w := &watcher{g: g, names: args, json: form.Value == "json"}
			return g.c.With(cmd.Context(), g.a, func(ctx context.Context, b *connect.Broker) error {
				return w.run(ctx, b.Admin(), time.Duration(every), count)
			})
		},
	}
	cmd.Flags().Var(&every, "every", "pause between two looks")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many looks; 0 means without end")
	form = output(cmd.Flags())
	return cmd
}

func (w *watcher) run(ctx context.Context, ad holdfast.Admin, every time.Duration, count int) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for n := 1; ; n++ {
		if err := w.look(ctx, ad); err != nil {
			return cli.Read(cli.Cause(ctx, err))
		}
		if n == count {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look shows how the queues are.
func (w *watcher) look(ctx context.Context, ad holdfast.Admin) error {
	ctx, cancel := w.g.c.Limit(ctx)
	defer cancel()
	var all []holdfast.QueueInfo
	var err error
	if len(w.names) == 0 {
		all, err = ad.List(ctx)
	}
	for _, name := range w.names {
		var info holdfast.QueueInfo
		if info, err = ad.Describe(ctx, name); err != nil {
			break
		}
		all = append(all, info)
	}
	if err != nil {
		return given(ctx, err)
	}
	now := time.Now()
	over := now.Sub(w.at)
	after := map[string]holdfast.QueueInfo{}
	for i := range all {
		q := &all[i]
		after[q.Name] = *q
		before, known := w.before[q.Name]
		if !known {
			before = *q
		}
		if err := w.show(now, q, &before, over); err != nil {
			return err
		}
	}
	w.before, w.at = after, now
	return nil
}

const watchLine = "%-8s  %-24s %10s %10s %9s %9s %9s %9s %9s  %s\n"

func (w *watcher) show(now time.Time, q, before *holdfast.QueueInfo, over time.Duration) error {
	if w.json {
		o := append(cli.Object{{Name: "time", Value: cli.Stamp(now.UnixMilli())}}, infoObject(q)...)
		return cli.WriteJSON(w.g.a.Out, o)
	}
	if w.lines%20 == 0 {
		if _, err := fmt.Fprintf(w.g.a.Out, watchLine, "TIME", "QUEUE", "MESSAGES", "READY", "IN FLIGHT", "SENT/S", "DELIV/S", "LEFT/S", "OLDEST", "STATE"); err != nil {
			return err
		}
	}
	w.lines++
	s, b := &q.Stats, &before.Stats
	if w.before == nil {
		over = 0 // there is nothing to compare with
	}
	_, err := fmt.Fprintf(w.g.a.Out, watchLine, now.Format("15:04:05"), q.Name, number(s.Depth), number(s.Ready+s.Blocked), number(s.InFlight),
		rate(s.Sent, b.Sent, over), rate(s.Delivered, b.Delivered, over), rate(s.Sent-s.Depth, b.Sent-b.Depth, over),
		cli.Age(time.Duration(s.OldestAge)*time.Millisecond), state(q))
	return err
}
