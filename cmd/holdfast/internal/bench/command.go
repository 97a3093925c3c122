package bench

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
)

// Command returns "holdfast bench" and what is below it.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a broker on this machine",
		Long: `Measure a broker: by default one of its own, a child process with a new directory below --dir that is removed at the end. Senders and receivers are
processes of their own.

Beside each run two ceilings are measured in the same directory: a file that is appended to and synced (fdatasync), and a bare framed connection into one
synced log, without a queue. Absolute figures move from day to day and machine to machine; the ratios count.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		command(a, "send", "Send as fast as it goes, or at a rate", `Messages a second that are sent and acknowledged.`, send, func(b *bench) { b.compareRate(sendRate) }),
		command(a, "receive", "Fill a queue, and receive from it as fast as it goes", `A number of messages is sent first. Then they are received and acknowledged, and the rate from the first to the last one is told.`,
			receive, func(b *bench) { b.compareRate(receiveRate) }),
		command(a, "pipeline", "Send, receive and acknowledge at once", `Messages a second that are received and acknowledged while others are sent to the same queue.`,
			pipeline, func(b *bench) { b.compareRate(receiveRate) }),
		command(a, "latency", "Measure the time from send to handler at a fixed rate", `Messages are due at fixed times, whether or not those before them were in time, and each latency is counted from when its message was due: what is held up is not left
out (no coordinated omission). With --background, a pipeline of another queue runs at full speed beside it.`,
			latency, func(b *bench) { b.compareLatency(toHandler); b.compareLatency(toAnswer) }),
		command(a, "backlog", "Let a queue grow, start the broker again, and drain the queue", `A queue grows to a number of messages; then the broker is stopped and started, and killed and started; then the queue is drained. Tells memory, the times to the first message, rates,
and bytes written to storage. With --stuck, the handlers of that part of the messages fail while the queue is drained, so that they stay.`,
			backlog, func(b *bench) { b.compareRate(sendRate) }),
		command(a, "delivery", "Measure reliable delivery without a queue", `A producer and a consumer of reliable delivery (package delivery), each message confirmed: in one process, and at the two ends of a connection.`,
			deliver, func(*bench) {}),
		workerCommand(a))
	return cmd
}

// command is one of the benchmarks.
func command(a *cli.App, name, short, long string, w workload, compare func(*bench)) *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			if o.binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			o.env = connection(cmd)
			return run(cmd.Context(), a, o, name, w, compare)
		},
	}
	o.register(cmd.Flags(), name)
	return cmd
}

// connection tells workers how to reach the broker by their environment, so that no token is seen on a command line.
func connection(cmd *cobra.Command) (env []string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(connect.Flags).RegisterClient(all)
	all.VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flags().Lookup(f.Name); given != nil && given.Changed {
			value := given.Value.String()
			if many, ok := given.Value.(pflag.SliceValue); ok {
				value = ""
				for _, v := range many.GetSlice() {
					value += v + "\n"
				}
			}
			env = append(env, cli.EnvName(f.Name)+"="+value)
		}
	})
	return env
}

// register adds the flags that a benchmark has.
func (o *Options) register(fs *pflag.FlagSet, name string) {
	byTime := name == "send" || name == "pipeline" || name == "latency"
	queues := name != "delivery"
	fs.Var(&o.payload, "payload", "size of each message's body, at least 8B")
	fs.IntVar(&o.window, "window", o.window, "messages that each sender may have unanswered, for each queue")
	if queues {
		o.conn.RegisterClient(fs)
		fs.IntVar(&o.senders, "senders", o.senders, "processes that send, each to all queues")
		if name != "send" {
			fs.IntVar(&o.receivers, "receivers", o.receivers, "processes that receive, each from all queues")
			fs.IntVar(&o.workers, "workers", 0, "handlers that run at the same time, for each queue and receiver; 0 means one for each core")
		}
		if name != "backlog" {
			fs.IntVar(&o.queues, "queues", o.queues, "queues that are used at the same time")
		}
		fs.Var(&o.durability, "durability", "synced: acknowledged sends are on stable storage; buffered: a crash of the machine may lose the last ones")
		fs.StringVar(&o.journal, "journal", o.journal, "`URL` of the journal of the benchmark's own broker; "+dirWord+" is its directory")
		fs.StringArrayVar(&o.serveArgs, "serve", nil, "further `argument` for the benchmark's own broker, such as --cache=64MiB; can be repeated")
		fs.StringVar(&o.profile, "profile", "", "`directory` for profiles of processor time, of the benchmark's own broker and of the clients")
	}
	if byTime {
		fs.Float64Var(&o.rate, "rate", rates[name], "messages a second from each sender to each queue; 0 means as fast as possible")
		fs.BoolVar(&o.embedded, "embedded", false, "broker, senders and receivers in one process")
		fs.BoolVar(&o.together, "one-process", false, "senders and receivers in one process")
	}
	if name == "send" || name == "pipeline" {
		fs.BoolVar(&o.blocking, "blocking", false, "send by as many callers as the window has messages, each of whom waits for the answer")
	}
	if name == "latency" {
		fs.BoolVar(&o.background, "background", false, "with a pipeline of another queue at full speed beside it")
	}
	if name == "receive" || name == "backlog" {
		fs.Int64Var(&o.messages, "messages", o.messages, "messages that are sent and then received")
	} else {
		fs.Var(&o.duration, "duration", "time that is measured")
		fs.Var(&o.warmup, "warmup", "time before that")
	}
	if name == "backlog" {
		fs.Float64Var(&o.stuck, "stuck", 0, "percentage of messages that stay in the queue while it is drained")
	}
	fs.Var(&o.network, "network", "what the benchmark's own processes are connected by")
	fs.IntVar(&o.runs, "runs", o.runs, "runs, of whose figures the median is told")
	fs.StringVar(&o.dir, "dir", o.dir, "`directory` in which the benchmark makes its own, and whose disk is measured")
	fs.Var(&o.ceiling, "ceiling-time", "how long each ceiling is measured, before each run")
	fs.BoolVar(&o.noCeilings, "no-ceilings", false, "measure no ceilings")
	fs.Var(&o.output, "output", "form of the output")
	fs.StringVar(&o.chart, "chart", "", "`file` for a chart, SVG")
}

// rates are the defaults of --rate.
var rates = map[string]float64{"latency": 1000}

// workerCommand is what the benchmark's own processes run.
func workerCommand(a *cli.App) *cobra.Command {
	var conn connect.Flags
	cmd := &cobra.Command{
		Use: "worker", Short: "Be a process of a benchmark", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := conn.ClientOptions(a)
			if err != nil {
				return err
			}
			o.Lazy = false
			return worker.Run(cmd.Context(), a.In, a.Out, o, a.Log)
		},
	}
	conn.RegisterClient(cmd.Flags())
	return cmd
}
