// Package send is "holdfast send".
package send

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/queue"
)

// flags are what the command line says.
type flags struct {
	connect  connect.Flags
	lines    bool
	files    bool
	count    int64
	every    cli.Duration
	headers  []string
	delay    cli.Duration
	ttl      cli.Duration
	key      string
	dedupID  string
	priority int
	producer string
	noWait   bool

	repeat bool // BODY is sent again and again
}

// Command returns "holdfast send".
func Command(a *cli.App) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "send QUEUE [BODY...]",
		Short: "Send messages, and print their ids once they are stored",
		Long: `Send messages. Each BODY is one; without any, standard input is: all of it one message, or each line one with --lines, or each
line the path of a file whose content is one with --files. The ids are printed in the order of the input, one a line, each
once its message is stored; a dash stands for a message that is stored, but whose id was lost with a connection.

With --every or --count, BODY is sent again and again, until --count or an interruption; {n} in it is replaced by the number of the
message, {sender} by --producer-id (or a random word).

A full queue makes the command wait, which it says; for a store without room it waits --timeout. If it ends before everything is stored, it says what is stored and where to
resume. It exits with 3 if the outcome of a message is unknown.

--producer-id makes it possible to run the same command with the same input again after whatever end: what is stored already is
left out. The broker remembers an id for a day after its last message. Input that begins with another message counts as other
input, and is sent from its beginning; input that begins with the same one counts as the same, and is refused if it has fewer messages
than are stored of it. So give other input, such as the next file with the same heading, an id of its own.`,
		Example: `  holdfast send orders '{"item":1}'
  holdfast send orders --lines <orders.jsonl
  find . -type f | holdfast send backup --files --producer-id backup-1
  holdfast send load --every 10ms --count 1000 'message {n} of {sender}'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.repeat = cmd.Flags().Changed("every") || (cmd.Flags().Changed("count") && len(args) > 1 && !f.files)
			if err := f.check(args); err != nil {
				return cli.Usage(err)
			}
			return f.connect.With(cmd.Context(), a, func(ctx context.Context, b *connect.Broker) error {
				return run(ctx, a, f, b, args[0], args[1:])
			})
		},
	}
	fs := cmd.Flags()
	f.connect.Register(fs)
	f.connect.CreateStore()
	fs.BoolVar(&f.lines, "lines", false, "each line of standard input is a message")
	fs.BoolVar(&f.files, "files", false, "each argument, or line of standard input, is the path of a file whose content is a message, with the path in the header \"path\"")
	fs.Int64Var(&f.count, "count", 0, "end after so many messages; with BODY, repeat it so often")
	fs.Var(&f.every, "every", "repeat BODY at this interval")
	fs.StringArrayVar(&f.headers, "header", nil, "header `name=value` of the messages; can be repeated")
	fs.Var(&f.delay, "delay", "hold the messages back for this long")
	fs.Var(&f.ttl, "ttl", "let the messages expire after this long")
	fs.StringVar(&f.key, "key", "", "ordering `key`: the next message of a key is handed out once the one before is done")
	fs.StringVar(&f.dedupID, "dedup-id", "", "`id` of the one message that is sent: another message with the same id is not stored within the queue's dedup window")
	fs.IntVar(&f.priority, "priority", 0, "0 (last) to 9 (first)")
	fs.StringVar(&f.producer, "producer-id", "", "`name` for this input, under which it can be resumed")
	fs.BoolVar(&f.noWait, "no-wait", false, "fail when the queue is full, instead of waiting")
	return cmd
}

// check refuses what does not go together.
func (f *flags) check(args []string) error {
	errs := []error{queue.ValidName(args[0])}
	bodies := len(args) - 1
	if f.lines && f.files {
		errs = append(errs, errors.New("--lines and --files exclude each other"))
	}
	if f.lines && bodies > 0 {
		errs = append(errs, errors.New("--lines reads standard input, and there is a BODY"))
	}
	if f.count < 0 {
		errs = append(errs, fmt.Errorf("--count is %d, want 0 (without limit) or more", f.count))
	}
	if f.repeat && (bodies != 1 || f.files) {
		errs = append(errs, fmt.Errorf("--every and --count repeat one BODY, and there are %d", bodies))
	}
	if f.dedupID != "" && (f.lines || f.files || f.repeat || bodies > 1) {
		errs = append(errs, errors.New("--dedup-id goes with a single message"))
	}
	if len(f.producer) > 256 {
		errs = append(errs, fmt.Errorf("--producer-id has %d bytes, want at most 256", len(f.producer)))
	}
	if _, err := f.message(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// message returns what the flags say of every message.
func (f *flags) message() (holdfast.Message, error) {
	m := holdfast.Message{
		Delay: time.Duration(f.delay), TTL: time.Duration(f.ttl), Key: f.key, DedupID: f.dedupID, Priority: f.priority,
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return m, fmt.Errorf("--header %q is not name=value", h)
		}
		m.Headers = append(m.Headers, holdfast.Header{Name: name, Value: value})
	}
	probe := m
	probe.Body = nil
	return m, probe.Validate(holdfastLimits)
}

// sender is what {sender} stands for.
func (f *flags) sender() string {
	if f.producer != "" {
		return f.producer
	}
	host, err := os.Hostname()
	if err != nil {
		host = "sender"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
