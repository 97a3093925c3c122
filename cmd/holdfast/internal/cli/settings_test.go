package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

// syncBuffer is a buffer that can be waited for.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *syncBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *syncBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (w *syncBuffer) await(t *testing.T, text string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if strings.Contains(w.String(), text) {
			return
		}
	}
}

// tree is a command line like that of the binary: "app one sub", each with flags.
func tree(a *cli.App, ran *string) *cobra.Command {
	var config, level, addr string
	var count int
	var header []string
	var wait cli.Duration
	root := &cobra.Command{Use: "app", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.Settle(cmd) }}
	root.PersistentFlags().StringVar(&config, "config", "", "")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "")
	one := &cobra.Command{Use: "one"}
	sub := &cobra.Command{Use: "sub", RunE: func(cmd *cobra.Command, _ []string) error {
		*ran = fmt.Sprintf("level=%s addr=%s count=%d header=%q wait=%v count from %d", level, addr, count, header, time.Duration(wait), a.Source("count"))
		return nil
	}}
	one.PersistentFlags().StringVar(&addr, "addr", "here", "")
	sub.Flags().IntVar(&count, "count", 1, "")
	sub.Flags().StringArrayVar(&header, "header", nil, "")
	sub.Flags().Var(&wait, "wait", "")
	one.AddCommand(sub)
	root.AddCommand(one)
	return root
}

func settle(t *testing.T, config string, env map[string]string, args ...string) (string, error) {
	t.Helper()
	a := cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	a.Env = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	var ran string
	cmd := tree(a, &ran)
	all := append([]string{"one", "sub"}, args...)
	if config != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, "--config", path)
	}
	cmd.SetArgs(all)
	err := cmd.Execute()
	return ran, err
}

// The command line goes before the environment, that before the file, and in the file the most special section goes first.
func TestSettle(t *testing.T) {
	const file = `
# for all commands
log-level: debug
count: 2
header: [a=1, "b=2"]
one:
  addr: there
  count: 3
  sub:
    count: 4
    wait: 1d
`
	for _, c := range []struct {
		config string
		env    map[string]string
		args   []string
		want   string
	}{
		{"", nil, nil, `level=info addr=here count=1 header=[] wait=0s count from 0`},
		{file, nil, nil, `level=debug addr=there count=4 header=["a=1" "b=2"] wait=24h0m0s count from 1`},
		{file, map[string]string{"HOLDFAST_COUNT": "5", "HOLDFAST_HEADER": "c=3\nd=4\n", "HOLDFAST_ADDR": ""}, nil, `level=debug addr=there count=5 header=["c=3" "d=4"] wait=24h0m0s count from 2`},
		{file, map[string]string{"HOLDFAST_COUNT": "5"}, []string{"--count", "6", "--header", "x=y"}, `level=debug addr=there count=6 header=["x=y"] wait=24h0m0s count from 3`},
		{"log-level: warn", map[string]string{"HOLDFAST_LOG_LEVEL": "error"}, nil, `level=error addr=here count=1 header=[] wait=0s count from 0`},
		{"# nothing", nil, nil, `level=info addr=here count=1 header=[] wait=0s count from 0`},
	} {
		got, err := settle(t, c.config, c.env, c.args...)
		if err != nil || got != c.want {
			t.Errorf("%q %v %v: %s %v, want %s", c.config, c.env, c.args, got, err, c.want)
		}
	}
}

// What is wrong in the environment or the file is a usage error that names the place (G11).
func TestSettleRefuses(t *testing.T) {
	for _, c := range []struct {
		config string
		env    map[string]string
		want   string
	}{
		{"", map[string]string{"HOLDFAST_COUNT": "many"}, `environment variable HOLDFAST_COUNT: invalid argument "many"`},
		{"", map[string]string{"HOLDFAST_CONFIG": "/nowhere"}, "read the configuration: open /nowhere"},
		{"cuont: 3", nil, `config.yaml:1: "cuont" is no flag of app`},
		{"one:\n  sub:\n    addrs: x", nil, `config.yaml:3: "addrs" is no flag of app one sub`},
		{"two:\n  count: 3", nil, `config.yaml:1: "two" is no command`},
		{"count: many", nil, "config.yaml:1: count: invalid argument"},
		{"count: [[1]]", nil, "config.yaml:1: count: want a value, or a list of values"},
		{"- count", nil, "config.yaml:1: want names of flags and commands"},
		{"a: b: c", nil, "read the configuration"},
		{"help: true", nil, `"help" is no flag`},
	} {
		_, err := settle(t, c.config, c.env)
		if err == nil || !strings.Contains(err.Error(), c.want) || cli.Code(err) != cli.ExitUsage {
			t.Errorf("%q %v: %v, want %q", c.config, c.env, err, c.want)
		}
	}
}
