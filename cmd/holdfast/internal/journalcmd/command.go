// Package journalcmd is "holdfast journal": looking at a store that no broker has open.
package journalcmd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/queue"
)

// Command returns "holdfast journal" with its subcommands.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "journal", Short: "Verify, copy and show what is stored",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verify(a), copyCommand(a), dump(a))
	return cmd
}

const urls = "\n\nJournals:\n"

// open opens a journal for looking only.
func open(ctx context.Context, a *cli.App, url string) (journal.Journal, error) {
	j, err := journals.Open(ctx, url, journals.Options{ReadOnly: true, Logger: a.Log})
	if errors.Is(err, journals.ErrURL) {
		err = cli.Usage(err)
	}
	return j, err
}

func verify(a *cli.App) *cobra.Command {
	var streams []string
	cmd := &cobra.Command{
		Use:   "verify URL",
		Short: "Read everything that is stored and needed, and name what is damaged or missing",
		Long: `Read everything that is stored and needed, and name what is damaged or missing: one line for each stream, and behind it one for each
fault. Nothing is changed. It exits with 1 if there is a fault.` + urls + journals.Help(),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := open(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			return errors.Join(verifyAll(cmd.Context(), a, j, streams), j.Close())
		},
	}
	cmd.Flags().StringSliceVar(&streams, "stream", nil, "only these `streams`; that of a queue is queue/NAME")
	return cmd
}

// wanted yields the streams that the user asks for.
func wanted(ctx context.Context, j journal.Journal, names []string) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		seen := map[string]bool{}
		for info, err := range j.Streams(ctx) {
			if err == nil && len(names) > 0 && !contains(names, info.Name) {
				continue
			}
			seen[info.Name] = true
			if !yield(info, err) {
				return
			}
		}
		for _, name := range names {
			if !seen[name] && !yield(journal.Info{}, fmt.Errorf("there is no stream %q", name)) {
				return
			}
		}
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func verifyAll(ctx context.Context, a *cli.App, j journal.Journal, names []string) error {
	faults, count := 0, 0
	if loss := journals.Loss(j); loss != nil {
		faults++
		if _, err := fmt.Fprintf(a.Out, "damaged\tthe store\n\t%v\n", loss.Err); err != nil {
			return err
		}
	}
	for info, err := range wanted(ctx, j, names) {
		if err != nil {
			return err
		}
		var now broker.Verification
		updates := make(chan broker.Verification, 1)
		stop := a.Err.Progress(func() string {
			select {
			case now = <-updates:
			default:
			}
			return fmt.Sprintf("%s: %s records, %s bodies", info.Name, cli.FormatCount(now.Records), cli.FormatCount(now.Bodies))
		})
		v, err := broker.Verify(ctx, j, info.Name, func(v *broker.Verification) {
			select {
			case updates <- *v:
			default:
			}
		})
		stop()
		if err != nil {
			return cli.Cause(ctx, err)
		}
		count++
		faults += len(v.Faults)
		if err := printVerification(a, &v); err != nil {
			return err
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d faults in %d streams", faults, count)
	}
	a.Say("%d streams are intact", count)
	return nil
}

func printVerification(a *cli.App, v *broker.Verification) error {
	word := "ok"
	if len(v.Faults) > 0 {
		word = "damaged"
	}
	var b strings.Builder
	seqs := fmt.Sprintf("seqs %d to %d", v.Info.Low, v.Info.End)
	if v.Info.Low > v.Info.End {
		seqs = fmt.Sprintf("no seqs up to %d", v.Info.End)
	}
	fmt.Fprintf(&b, "%s\t%s\tepoch %d, %s, snapshot at %d, %d records, %d events, %d messages, %d bodies, %s",
		word, v.Info.Name, v.Info.Epoch, seqs, v.Snapshot, v.Records, v.Events, v.Messages, v.Bodies, cli.FormatSize(v.MetaBytes+v.BodyBytes))
	if v.Info.Dropped {
		b.WriteString(", dropped")
	}
	b.WriteByte('\n')
	for _, err := range v.Faults {
		fmt.Fprintf(&b, "\t%v\n", err)
	}
	_, err := a.Out.Write([]byte(b.String()))
	return err
}

// dumper is one run of "journal dump".
type dumper struct {
	a        *cli.App
	streams  []string
	from, to uint64
	bodies   bool
	faults   int
}

func dump(a *cli.App) *cobra.Command {
	d := &dumper{a: a}
	cmd := &cobra.Command{
		Use:   "dump URL",
		Short: "Show the records of a store as JSON, one a line",
		Long: `Show the records of a store as JSON, one a line, with their events where the stream is a queue's, and in base64 with --bodies what
they hold of messages. Behind what is damaged it goes on: the record says so in "error" or "body_error", and it exits with 1.` + urls + journals.Help(),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := open(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			return errors.Join(cli.Cause(cmd.Context(), d.run(cmd.Context(), j)), j.Close())
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&d.streams, "stream", nil, "only these `streams`; that of a queue is queue/NAME")
	fs.Uint64Var(&d.from, "from", 0, "only records from the one on that holds this `seq`")
	fs.Uint64Var(&d.to, "to", math.MaxUint64, "only records up to the one that holds this `seq`")
	fs.BoolVar(&d.bodies, "bodies", false, "with bodies")
	return cmd
}

func (d *dumper) run(ctx context.Context, j journal.Journal) error {
	for info, err := range wanted(ctx, j, d.streams) {
		if err != nil {
			return err
		}
		o := cli.Object{
			{Name: "stream", Value: info.Name}, {Name: "uid", Value: info.UID.String()}, {Name: "epoch", Value: info.Epoch},
			{Name: "low", Value: info.Low}, {Name: "end", Value: info.End}, {Name: "dropped", Value: info.Dropped},
		}
		if err := cli.WriteJSON(d.a.Out, o); err != nil {
			return err
		}
		r, err := j.Open(ctx, info.Name)
		if err != nil {
			return err
		}
		if err := d.stream(ctx, r, info); err != nil {
			return err
		}
	}
	if loss := journals.Loss(j); loss != nil {
		return fmt.Errorf("what is there was shown: %w", loss.Err)
	}
	if d.faults > 0 {
		return fmt.Errorf("%d faults", d.faults)
	}
	return nil
}

// stream shows the records of a stream. Behind damage it goes on at the next record.
func (d *dumper) stream(ctx context.Context, r journal.Reader, info journal.Info) error {
	told := false // of what stands before from, and cannot be read
	for from := max(d.from, info.Low); from <= min(d.to, info.End); {
		var damage error
		for rec, err := range r.ReadMeta(ctx, from, d.to) {
			if err != nil {
				damage = err
				break
			}
			from, told = rec.Last()+1, false
			o, err := d.record(ctx, r, info.Name, rec)
			if err != nil {
				return err
			}
			if err := cli.WriteJSON(d.a.Out, o); err != nil {
				return err
			}
		}
		if damage == nil {
			return nil
		}
		var at *journal.CorruptError
		if !errors.As(damage, &at) {
			return damage
		}
		if from = max(from, at.Seq); !told { // where a damaged record ends is not known: the seqs in it are tried in turn
			d.faults++
			o := cli.Object{{Name: "stream", Value: info.Name}, {Name: "seq", Value: from}, {Name: "error", Value: damage.Error()}}
			if err := cli.WriteJSON(d.a.Out, o); err != nil {
				return err
			}
		}
		from, told = from+1, true
	}
	return nil
}

var kinds = map[journal.Kind]string{journal.KindEvents: "events", journal.KindEpoch: "epoch", journal.KindSkip: "skip"}

// record is a record as JSON.
func (d *dumper) record(ctx context.Context, r journal.Reader, stream string, rec *journal.Record) (cli.Object, error) {
	o := cli.Object{
		{Name: "stream", Value: stream}, {Name: "seq", Value: rec.First}, {Name: "count", Value: rec.Count}, {Name: "kind", Value: kinds[rec.Kind]},
		{Name: "epoch", Value: rec.Epoch}, {Name: "time", Value: cli.Stamp(rec.Time)}, {Name: "meta_bytes", Value: rec.MetaLen},
		{Name: "body_bytes", Value: rec.BodyLen}, {Name: "crc", Value: fmt.Sprintf("%08x", rec.CRC)},
	}
	if _, ok := broker.QueueOf(stream); ok && rec.Kind == journal.KindEvents {
		var events []cli.Object
		for e, err := range broker.ReadEvents(rec) {
			if err != nil {
				d.faults++
				o = append(o, cli.Pair{Name: "error", Value: err.Error()})
				break
			}
			events = append(events, eventObject(e.Seq, e.Count, e.Bodyless, e.Undoes, e.Event))
		}
		o = append(o, cli.Pair{Name: "events", Value: events})
	}
	if !d.bodies || rec.BodyLen == 0 {
		return o, nil
	}
	for full, err := range r.ReadBodies(ctx, []uint64{rec.First}) {
		if errors.Is(err, journal.ErrCorrupt) {
			d.faults++
			return append(o, cli.Pair{Name: "body_error", Value: err.Error()}), nil
		}
		if err != nil {
			return nil, err
		}
		var body []byte
		for _, c := range full.Body {
			body = append(body, c...)
		}
		return append(o, cli.Pair{Name: "body_base64", Value: base64.StdEncoding.EncodeToString(body)}), nil
	}
	return append(o, cli.Pair{Name: "body_discarded", Value: true}), nil
}

var eventKinds = map[queue.Kind]string{
	queue.KindAdded: "added", queue.KindLeased: "leased", queue.KindStarted: "started", queue.KindReturned: "returned", queue.KindDeleted: "deleted",
	queue.KindExpired: "expired", queue.KindPurged: "purged", queue.KindDropped: "dropped", queue.KindParked: "parked", queue.KindMoving: "moving",
	queue.KindMoved: "moved", queue.KindUnparked: "unparked", queue.KindConfigured: "configured", queue.KindPaused: "paused",
	queue.KindRelocated: "relocated", queue.KindProducerClosed: "producer-closed", queue.KindSuppressed: "suppressed", queue.KindUndone: "undone",
}
