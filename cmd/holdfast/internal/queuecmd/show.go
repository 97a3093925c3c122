package queuecmd

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/queue"
)

func output(fs *pflag.FlagSet) *cli.Choice {
	c := &cli.Choice{Value: "table", Of: []string{"table", "json"}}
	fs.Var(c, "output", "form of the output")
	return c
}

func (g *group) list() *cobra.Command {
	var form *cli.Choice
	cmd := &cobra.Command{
		Use: "list", Short: "List all queues", Args: cobra.NoArgs,
		Long: `List all queues. With --output json each is an object on a line of its own.

READY includes messages that wait for one before them with the same ordering key, DELAYED those that wait to be tried again;
"queue describe" tells them apart. STATE says how many messages are damaged: their bodies cannot be read, and they are parked. "queue peek
--state parked" names them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.look(cmd.Context(), nil, func(ctx context.Context, ad holdfast.Admin) error {
				all, err := g.listAll(ctx, ad)
				if err != nil {
					return err
				}
				if form.Value == "json" {
					for i := range all {
						if err := cli.WriteJSON(g.a.Out, infoObject(&all[i])); err != nil {
							return err
						}
					}
					return nil
				}
				rows := [][]string{{"QUEUE", "MESSAGES", "READY", "IN FLIGHT", "DELAYED", "PARKED", "BYTES", "OLDEST", "STATE"}}
				for i := range all {
					rows = append(rows, listRow(&all[i]))
				}
				return cli.Table(g.a.Out, rows)
			})
		},
	}
	form = output(cmd.Flags())
	return cmd
}

// listAll lists all queues. On a store directly it waits until each is recovered or has failed: nobody else does that.
func (g *group) listAll(ctx context.Context, ad holdfast.Admin) ([]holdfast.QueueInfo, error) {
	embedded, err := g.c.Embedded(g.a)
	if err != nil {
		return nil, err
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		all, err := ad.List(ctx)
		if err != nil || !embedded || !slices.ContainsFunc(all, func(q holdfast.QueueInfo) bool { return !q.Ready && q.Error == "" }) {
			return all, err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return all, nil
		}
	}
}

func listRow(q *holdfast.QueueInfo) []string {
	if !q.Ready {
		return []string{q.Name, "-", "-", "-", "-", "-", "-", "-", state(q)}
	}
	s := &q.Stats
	oldest := "-"
	if s.Depth > 0 {
		oldest = cli.Age(time.Duration(s.OldestAge) * time.Millisecond)
	}
	return []string{
		q.Name, number(s.Depth), number(s.Ready + s.Blocked), number(s.InFlight), number(s.Delayed + s.Retrying), number(s.Parked),
		cli.FormatSize(int64(s.Bytes)), oldest, state(q),
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// state is a queue's state in a few words.
func state(q *holdfast.QueueInfo) string {
	switch {
	case q.Error != "":
		return "failed: " + q.Error
	case !q.Ready:
		return "opening"
	case q.Stats.StorageFull:
		return "storage full"
	case q.Paused:
		return "paused" + damaged(q)
	}
	return "ready" + damaged(q)
}

// damaged says how many messages of a queue cannot be read, if there are any.
func damaged(q *holdfast.QueueInfo) string {
	if n := q.Stats.Damaged; n > 0 {
		return fmt.Sprintf(", %d damaged", n)
	}
	return ""
}

func (g *group) describe() *cobra.Command {
	var form *cli.Choice
	cmd := &cobra.Command{
		Use: "describe QUEUE...", Short: "Show the configuration, the state and the counters of queues", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.look(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				for i, name := range args {
					info, err := ad.Describe(ctx, name)
					if err != nil {
						return err
					}
					if form.Value == "json" {
						err = cli.WriteJSONIndented(g.a.Out, infoObject(&info))
					} else {
						if i > 0 {
							if _, err := fmt.Fprintln(g.a.Out); err != nil {
								return err
							}
						}
						err = g.describeTable(&info)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	form = output(cmd.Flags())
	return cmd
}

func (g *group) describeTable(q *holdfast.QueueInfo) error {
	rows := [][]string{
		{"queue", q.Name}, {"state", state(q)}, {"owner", q.Owner}, {"epoch", number(q.Epoch)},
		{"stream uid", hex.EncodeToString(q.StreamUID[:])},
	}
	if q.Damage != "" {
		rows = append(rows, []string{"damage", q.Damage})
	}
	rows = append(rows, []string{"", ""})
	for _, o := range []cli.Object{configObject(&q.Config), messagesObject(&q.Stats), countersObject(&q.Stats), presentObject(&q.Stats)} {
		for _, p := range o {
			value := fmt.Sprint(p.Value)
			if value == "" {
				value = "-" // an empty cell would end the column for the rows below it
			}
			rows = append(rows, []string{spaced(p.Name), value})
		}
		rows = append(rows, []string{"", ""})
	}
	return cli.Table(g.a.Out, rows[:len(rows)-1])
}

func spaced(name string) string {
	b := []byte(name)
	for i := range b {
		if b[i] == '_' {
			b[i] = ' '
		}
	}
	return string(b)
}

// infoObject is a queue as JSON.
func infoObject(q *holdfast.QueueInfo) cli.Object {
	o := cli.Object{{Name: "name", Value: q.Name}, {Name: "state", Value: state(q)}, {Name: "ready", Value: q.Ready}}
	if q.Error != "" {
		o = append(o, cli.Pair{Name: "error", Value: q.Error})
	}
	if q.Damage != "" {
		o = append(o, cli.Pair{Name: "damage", Value: q.Damage})
	}
	o = append(o, cli.Pair{Name: "owner", Value: q.Owner})
	if !q.Ready {
		return o
	}
	return append(o,
		cli.Pair{Name: "epoch", Value: q.Epoch},
		cli.Pair{Name: "stream_uid", Value: hex.EncodeToString(q.StreamUID[:])},
		cli.Pair{Name: "config", Value: configObject(&q.Config)},
		cli.Pair{Name: "messages", Value: messagesObject(&q.Stats)},
		cli.Pair{Name: "counters", Value: countersObject(&q.Stats)},
		cli.Pair{Name: "present", Value: presentObject(&q.Stats)})
}

func configObject(c *queue.Config) cli.Object {
	retry := max(c.RetryFirst, 0)
	return cli.Object{
		{Name: "visibility_timeout", Value: cli.FormatDuration(c.VisibilityTimeout)},
		{Name: "max_deliveries", Value: c.MaxDeliveries},
		{Name: "dead_letter", Value: c.DeadLetter},
		{Name: "retry_first", Value: cli.FormatDuration(retry)},
		{Name: "retry_cap", Value: cli.FormatDuration(c.RetryCap)},
		{Name: "retention", Value: cli.FormatDuration(c.Retention)},
		{Name: "max_messages", Value: c.MaxMessages},
		{Name: "max_bytes", Value: c.MaxBytes},
		{Name: "overflow", Value: string(c.Overflow)},
		{Name: "durability", Value: string(c.Durability)},
		{Name: "default_delay", Value: cli.FormatDuration(c.DefaultDelay)},
		{Name: "dedup_window", Value: cli.FormatDuration(c.DedupWindow)},
	}
}

func messagesObject(s *queue.Stats) cli.Object {
	return cli.Object{
		{Name: "depth", Value: s.Depth}, {Name: "ready", Value: s.Ready}, {Name: "blocked", Value: s.Blocked}, {Name: "delayed", Value: s.Delayed},
		{Name: "retrying", Value: s.Retrying}, {Name: "in_flight", Value: s.InFlight}, {Name: "parked", Value: s.Parked}, {Name: "damaged", Value: s.Damaged},
		{Name: "moving", Value: s.Moving},
		{Name: "bytes", Value: s.Bytes}, {Name: "oldest_age_ms", Value: s.OldestAge},
	}
}

func countersObject(s *queue.Stats) cli.Object {
	return cli.Object{
		{Name: "sent", Value: s.Sent}, {Name: "duplicates", Value: s.Duplicates}, {Name: "refused", Value: s.Refused},
		{Name: "delivered", Value: s.Delivered}, {Name: "redelivered", Value: s.Redelivered}, {Name: "acked", Value: s.Acked},
		{Name: "nacked", Value: s.Nacked}, {Name: "released", Value: s.Released}, {Name: "lease_expired", Value: s.LeaseExpired},
		{Name: "disconnected", Value: s.Disconnected}, {Name: "expired", Value: s.Expired}, {Name: "purged", Value: s.Purged},
		{Name: "dropped", Value: s.Dropped}, {Name: "parked_ever", Value: s.ParkedEver}, {Name: "unparked", Value: s.Unparked},
		{Name: "dead_lettered", Value: s.DeadLettered}, {Name: "redriven", Value: s.Redriven},
		{Name: "producers_evicted", Value: s.ProducersEvicted}, {Name: "dedup_ids_evicted", Value: s.DedupIDsEvicted},
	}
}

func presentObject(s *queue.Stats) cli.Object {
	return cli.Object{
		{Name: "senders", Value: s.Senders}, {Name: "waiting_senders", Value: s.WaitingSenders}, {Name: "receivers", Value: s.Receivers},
		{Name: "held_receivers", Value: s.HeldReceivers}, {Name: "credit_outstanding", Value: s.CreditOutstanding},
		{Name: "producers", Value: s.Producers}, {Name: "dedup_ids", Value: s.DedupIDs},
		{Name: "stored_bytes", Value: s.StoredBytes}, {Name: "live_bytes", Value: s.LiveBytes},
		{Name: "paused", Value: s.Paused}, {Name: "storage_full", Value: s.StorageFull}, {Name: "holding_expiry", Value: s.HoldingExpiry},
	}
}
