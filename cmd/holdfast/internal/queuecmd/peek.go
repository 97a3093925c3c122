package queuecmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/queue"
)

func (g *group) peek() *cobra.Command {
	var (
		stateName string
		from      uint64
		limit     int
		form      *cli.Choice
	)
	cmd := &cobra.Command{
		Use: "peek QUEUE", Short: "Look at messages without receiving them",
		Long: `Look at messages without receiving them: nothing is leased, counted or put out of order. With --output json each
message is an object on a line of its own, with its whole body (base64 where it is not UTF-8). Of one whose body cannot be read, it says why.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := holdfast.PeekOptions{From: from, Limit: limit, Bodies: true}
			if limit < 1 || limit > holdfast.MaxPeek {
				return cli.Usagef("--limit is %d, want 1 to %d", limit, holdfast.MaxPeek)
			}
			if stateName != "" {
				s, err := queue.ParseState(stateName)
				if err != nil {
					return cli.Usage(err)
				}
				o.State = s
			}
			return g.look(cmd.Context(), args, func(ctx context.Context, ad holdfast.Admin) error {
				all, err := ad.Peek(ctx, args[0], o)
				if err != nil {
					return err
				}
				if form.Value == "json" {
					for i := range all {
						if err := cli.WriteJSON(g.a.Out, peekObject(args[0], &all[i])); err != nil {
							return err
						}
					}
					return nil
				}
				rows := [][]string{{"SEQ", "STATE", "DELIVERIES", "SIZE", "STORED", "DUE", "BODY"}}
				for i := range all {
					rows = append(rows, peekRow(&all[i]))
				}
				return cli.Table(g.a.Out, rows)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&stateName, "state", "", "only messages in this `state`: ready, blocked, delayed, retrying, in-flight, parked, moving")
	fs.Uint64Var(&from, "from", 0, "only messages from this `seq` on")
	fs.IntVar(&limit, "limit", 10, "at most so many, up to "+strconv.Itoa(holdfast.MaxPeek))
	form = output(fs)
	return cmd
}

func peekRow(m *holdfast.PeekedMessage) []string {
	due := "-"
	if m.Due != 0 {
		due = clock(m.Due)
	}
	body := cli.Clip(m.Message.Body, 60)
	if m.Error != "" {
		body = "damaged: " + m.Error
	}
	return []string{
		number(m.Seq), m.State.String(), strconv.Itoa(m.Deliveries), cli.FormatSize(int64(m.Size)), clock(m.StoredAt), due,
		body,
	}
}

// clock writes Unix milliseconds for people.
func clock(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05") }

func peekObject(name string, m *holdfast.PeekedMessage) cli.Object {
	o := cli.Object{
		{Name: "id", Value: m.ID.String()}, {Name: "queue", Value: name}, {Name: "seq", Value: m.Seq}, {Name: "state", Value: m.State.String()},
		{Name: "deliveries", Value: m.Deliveries}, {Name: "stored_at", Value: cli.Stamp(m.StoredAt)},
	}
	if m.Due != 0 {
		o = append(o, cli.Pair{Name: "due", Value: cli.Stamp(m.Due)})
	}
	if m.Target != "" {
		o = append(o, cli.Pair{Name: "target", Value: m.Target})
	}
	if m.Damaged {
		o = append(o, cli.Pair{Name: "damaged", Value: true})
	}
	if m.Error != "" {
		return append(o, cli.Pair{Name: "error", Value: m.Error})
	}
	o = append(o, cli.MessageObject(&m.Message)...)
	if hops := cli.Hops(m.Hops); hops != nil {
		o = append(o, cli.Pair{Name: "hops", Value: hops})
	}
	return o
}

// rate writes how many a second something happened.
func rate(now, before uint64, over time.Duration) string {
	if over <= 0 || now < before {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(now-before)/over.Seconds())
}
