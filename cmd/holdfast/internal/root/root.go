// Package root puts the commands together, and runs the one that the command line names.
package root

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/demo"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journalcmd"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/queuecmd"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/receive"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/send"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/serve"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/settle"
)

// version is set by the release build; otherwise the Go toolchain knows it.
var version string

// Version returns the version of the binary.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Main runs the binary and returns its exit code.
func Main(args []string, in io.Reader, out, err io.Writer) int {
	a := cli.New(in, out, err)
	a.Version = Version()
	ctx, stop := a.Watch(context.Background())
	defer stop()
	return Run(ctx, a, args)
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, a *cli.App, args []string) int {
	running := false
	cmd := newRoot(a, &running)
	cmd.SetArgs(args)
	cmd.SetIn(a.In)
	cmd.SetOut(a.Out)
	cmd.SetErr(a.Err)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !running {
		// What goes wrong before a command runs is in how it was called.
		err = cli.Usage(err)
	}
	if code := cli.Code(err); err != nil {
		a.Say("%v", err)
		if code == cli.ExitUsage && !running {
			a.Say("see %s --help", called(cmd, args))
		}
		return code
	}
	return cli.ExitDone
}

// called returns the path of the command that args name, as far as they name one.
func called(cmd *cobra.Command, args []string) string {
	if found, _, err := cmd.Find(args); err == nil {
		return found.CommandPath()
	}
	return cmd.CommandPath()
}

// New returns the whole tree of commands, to look at.
func New(a *cli.App) *cobra.Command { return newRoot(a, new(bool)) }

func newRoot(a *cli.App, running *bool) *cobra.Command {
	var level, config string
	format := cli.Choice{Value: "text", Of: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "holdfast",
		Short: "A durable message queue",
		Long: `Holdfast is a durable message queue: a message is acknowledged to its sender once it is on stable storage, and to be worked on until a receiver
acknowledges it.

Each flag can also be given by the environment, as HOLDFAST_ and its name in capitals with underscores (HOLDFAST_LOG_LEVEL), where a flag that can be
repeated takes one value a line; and by the file that --config names. The command line goes before the environment, that before the file.

The file is YAML: names of flags with their values, or lists of values; below the name of a command they are for that one alone:

  addr: unix:/run/holdfast.sock
  serve:
    journal: segment:/var/lib/holdfast
    listen: [unix:/run/holdfast.sock, 127.0.0.1:9650]
  queue:
    output: json

Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 outcome unknown, 130 interrupted.`,
		SilenceErrors: true, SilenceUsage: true,
		Version: a.Version,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.Settle(cmd); err != nil {
				return err
			}
			if a.Source("log-level") == cli.FromDefault {
				level = defaultLevel(cmd)
			}
			log, err := a.NewLogger(level, format.Value)
			a.Log = log
			*running = err == nil
			return err
		},
	}
	cmd.SetVersionTemplate("holdfast {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(cli.PlainFlag(err)) })
	fs := cmd.PersistentFlags()
	fs.StringVar(&config, "config", "", "`file` with values of flags")
	fs.StringVar(&level, "log-level", "", "least important log messages that are shown: debug, info, warn, error (default: info for serve, else error)")
	fs.Var(&format, "log-format", "form of log messages")
	cmd.AddCommand(serve.Command(a), send.Command(a), receive.Command(a), settle.Ack(a), settle.Nack(a), settle.Extend(a),
		queuecmd.Command(a), journalcmd.Command(a), bench.Command(a), demo.Command(a), versionCommand(a))
	nameArguments(cmd)
	return cmd
}

// nameArguments makes a command that was called with too few or too many arguments say which it takes.
func nameArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		nameArguments(sub)
	}
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() { // what a command with others below it gets is the name of one that is not there
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		_, takes, some := strings.Cut(strings.TrimSuffix(cmd.Use, " [flags]"), " ")
		if !some {
			takes = "no arguments"
		}
		return fmt.Errorf("%s takes %s, and got %d arguments", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), takes, len(args))
	}
}

// defaultLevel is how much a command logs unless it is told. Commands other than the broker tell what concerns their user themselves.
func defaultLevel(cmd *cobra.Command) string {
	if cmd.Name() == "serve" {
		return "info"
	}
	return "error"
}

func versionCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Out, "holdfast "+a.Version+"\n")
			return errors.Join(err)
		},
	}
}
