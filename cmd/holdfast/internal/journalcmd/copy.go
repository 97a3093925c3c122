package journalcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
)

func copyCommand(a *cli.App) *cobra.Command {
	var o copier.Options
	ahead := cli.Size(copier.DefaultAhead)
	cmd := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy a store into another one, of the same or another kind",
		Long: `Copy a store into another one, of the same or another kind: streams, snapshots and epochs, so that a broker on the copy serves the same
queues, with the same message ids. It prints one line for each stream: what was copied, and up to which seq the copy is complete.

Records are copied as they are. If some are larger than DST takes, that is told before anything is copied, and what can be done.

It may be interrupted, and goes on where it was when it is run again. Brokers may go on using SRC, where its journal can be open more than
once; what they store after a stream was finished is copied by another run. Nobody else may use DST until the last run is over, and none of
its streams may have been written to by others. At the end everything is read again and compared.

A copy of SRC in use is of one moment. For that, what is there for a while only has to be read before it is gone, however slowly DST takes it: up to
--ahead of each of --parallel streams is held in memory. Where that is not enough it is told, and everything that was copied so far counts.

Records whose bodies cannot be read in SRC are copied without them, and that is told: the copied queue parks their messages, and serves
everything else.

It exits with 1 if a stream could not be copied, differs, or lacks bodies.` + urls + journals.Help(),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Ahead = int(min(ahead, math.MaxInt))
			return runCopy(cmd.Context(), a, args[0], args[1], o)
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&o.Streams, "stream", nil, "only these `streams`; that of a queue is queue/NAME")
	fs.IntVar(&o.Parallel, "parallel", copier.DefaultParallel, "how many streams are copied at once")
	fs.Var(&ahead, "ahead", "how much of a stream is read before it is written")
	fs.BoolVar(&o.NoVerify, "no-verify", false, "do not read and compare everything at the end")
	return cmd
}

func runCopy(ctx context.Context, a *cli.App, from, to string, o copier.Options) (err error) {
	if o.Parallel < 1 {
		return cli.Usagef("--parallel is %d, want 1 or more", o.Parallel)
	}
	if o.Ahead < 1 {
		return cli.Usagef("--ahead is 0, want 1 or more")
	}
	if from == to {
		return cli.Usagef("SRC and DST are the same store")
	}
	src, err := open(ctx, a, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if loss := journals.Loss(src); loss != nil {
		if err := loses(loss, o.Streams); err != nil {
			return err
		}
	}
	dst, err := journals.Open(ctx, to, journals.Options{Logger: a.Log})
	if errors.Is(err, journals.ErrURL) {
		err = cli.Usage(err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()

	var p progress
	o.Live, o.Progress, o.Logger = broker.LiveRecords, p.set, a.Log
	stop := a.Err.Progress(p.text)
	results, err := copier.Copy(ctx, src, dst, o)
	stop()
	failed, damaged := 0, 0
	for i := range results {
		if results[i].Err != nil {
			failed++
			results[i].Err = tooLarge(results[i].Err, to)
		} else if results[i].Damaged > 0 {
			damaged++
		}
		if _, err := a.Out.Write([]byte(copyLine(&results[i]))); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		a.Say("interrupted; run it again to go on")
		return cli.Cause(ctx, ctx.Err())
	case failed > 0:
		return fmt.Errorf("%d of %d streams were not copied", failed, len(results))
	case err != nil:
		return tooLarge(err, to)
	case damaged > 0:
		return fmt.Errorf("in %d of %d streams the source has bodies that cannot be read: everything else is copied", damaged, len(results))
	}
	a.Say("%d streams are copied", len(results))
	return nil
}

// tooLarge adds to an error about limits of the target what can be done.
func tooLarge(err error, to string) error {
	var limit *copier.LimitError
	if !errors.As(err, &limit) {
		return err
	}
	text := fmt.Sprintf("either %s, and copy again", journals.RaiseLimit(to, limit.Size, limit.Part != ""))
	if limit.Part == "" {
		text += fmt.Sprintf("; or let brokers serve the source with max-record=%dKiB in its URL, so that they write smaller records, until the messages of the larger ones are consumed",
			limit.Limit>>10)
	}
	return fmt.Errorf("%w: %s", err, text)
}

// loses refuses to copy what lacks something: a copy would look complete.
func loses(loss *journals.Lost, wanted []string) error {
	hit := func(stream string) bool { return slices.Contains(loss.Streams, stream) }
	if len(loss.Streams) > 0 && len(wanted) > 0 && !slices.ContainsFunc(wanted, hit) {
		return nil
	}
	ways := "restore it, or open it once with accept-loss=true in its URL"
	if len(loss.Streams) > 0 {
		ways += ", or copy the streams that lack nothing, by --stream"
	}
	return fmt.Errorf("the source is damaged (%s): %w", ways, loss.Err)
}

func copyLine(r *copier.Result) string {
	if r.Err != nil {
		return fmt.Sprintf("failed\t%s\t%s\n", r.Stream, strings.ReplaceAll(r.Err.Error(), "\n", "; "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "copied\t%s\tcomplete up to seq %d, %d records, %d bodies, %d parts, %s", r.Stream, r.End, r.Records, r.Bodies, r.Parts, cli.FormatSize(r.Bytes))
	if r.Verified > 0 {
		fmt.Fprintf(&b, ", %d records compared", r.Verified)
	}
	if r.Dropped {
		b.WriteString(", dropped")
	}
	if r.Damaged > 0 {
		fmt.Fprintf(&b, "; without the bodies of %d records, which cannot be read in the source: %s", r.Damaged, strings.ReplaceAll(r.Damage.Error(), "\n", "; "))
	}
	if r.SourceEnd > r.End {
		fmt.Fprintf(&b, "; the source is at seq %d by now", r.SourceEnd)
	}
	b.WriteByte('\n')
	return b.String()
}

// progress is what the status line shows.
type progress struct {
	mu     sync.Mutex
	last   copier.Progress
	copied map[string]copier.Progress
}

func (p *progress) set(now copier.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.copied == nil {
		p.copied = map[string]copier.Progress{}
	}
	p.last, p.copied[now.Stream] = now, now
}

func (p *progress) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.Stream == "" {
		return ""
	}
	var bytes int64
	for _, c := range p.copied {
		bytes += c.Bytes
	}
	what := "copying"
	switch {
	case p.last.Measuring:
		what = "measuring"
	case p.last.Verifying:
		what = "comparing"
	}
	percent := 100.0
	if p.last.End > 0 {
		percent = min(100, 100*float64(p.last.Seq)/float64(p.last.End))
	}
	return fmt.Sprintf("%s %s: seq %s of %s (%.0f%%); %d streams begun, %s in all",
		what, p.last.Stream, cli.FormatCount(p.last.Seq), cli.FormatCount(p.last.End), percent, len(p.copied), cli.FormatSize(bytes))
}
