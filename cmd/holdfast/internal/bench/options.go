package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/connect"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
)

// dirWord stands for the benchmark's directory in the URL of a journal.
const dirWord = "{dir}"

// Options are what a benchmark is to do.
type Options struct {
	conn connect.Flags

	payload    cli.Size
	window     int
	senders    int
	receivers  int
	queues     int
	workers    int
	rate       float64
	messages   int64
	duration   cli.Duration
	warmup     cli.Duration
	runs       int
	durability cli.Choice
	network    cli.Choice
	blocking   bool
	embedded   bool
	together   bool
	background bool
	stuck      float64
	journal    string
	dir        string
	serveArgs  []string
	noCeilings bool
	ceiling    cli.Duration
	output     cli.Choice
	chart      string
	profile    string

	binary  string
	sockets string   // a directory with a short path
	env     []string // that tells workers how to connect
}

// defaultJournal is that of serve, in the benchmark's directory.
const defaultJournal = journals.DefaultScheme + ":" + dirWord + "/data"

func newOptions() *Options {
	return &Options{
		payload: 100, window: 1000, senders: 1, receivers: 1, queues: 1, duration: cli.Duration(5 * time.Second), warmup: cli.Duration(time.Second), runs: 1,
		messages: 1_000_000, durability: cli.Choice{Value: "synced", Of: []string{"synced", "buffered"}}, network: cli.Choice{Value: "tcp", Of: []string{"tcp", "unix"}},
		journal: defaultJournal, dir: ".", ceiling: cli.Duration(time.Second), output: cli.Choice{Value: "table", Of: []string{"table", "json"}},
	}
}

// check finds what is wrong with the options, all of it.
func (o *Options) check() error {
	var errs []error
	for _, n := range []struct {
		name       string
		v, lo, top int64
	}{
		{"payload", int64(o.payload), 8, 64 << 20}, {"window", int64(o.window), 1, 1 << 20}, {"senders", int64(o.senders), 1, 1000},
		{"receivers", int64(o.receivers), 1, 1000}, {"queues", int64(o.queues), 1, 100_000}, {"workers", int64(o.workers), 0, 10_000},
		{"messages", o.messages, 1, 1 << 40}, {"runs", int64(o.runs), 1, 1000},
	} {
		if n.v < n.lo || n.v > n.top {
			errs = append(errs, fmt.Errorf("--%s is %d, want %d to %d", n.name, n.v, n.lo, n.top))
		}
	}
	if o.duration <= 0 {
		errs = append(errs, errors.New("--duration is 0s, want more"))
	}
	if o.rate < 0 || o.rate > 1e7 || o.rate != o.rate {
		errs = append(errs, fmt.Errorf("--rate is %g, want 0 to 10000000", o.rate))
	}
	if o.stuck < 0 || o.stuck > 50 || o.stuck != o.stuck {
		errs = append(errs, fmt.Errorf("--stuck is %g, want 0 to 50 percent", o.stuck))
	}
	if len(o.conn.Addrs()) > 0 && o.embedded {
		errs = append(errs, errors.New("--addr and --embedded exclude each other"))
	}
	return cli.Usage(errors.Join(errs...))
}

// remote tells that the broker is somebody else's.
func (o *Options) remote() bool { return len(o.conn.Addrs()) > 0 }
