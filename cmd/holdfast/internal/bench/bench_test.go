package bench_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	}))
}

// report runs the real binary and reads its report.
func report(t *testing.T, args ...string) *measure.Report {
	t.Helper()
	dir := clitest.Dir(t)
	args = append([]string{"bench"}, append(args, "--dir", dir, "--ceiling-time", "20ms", "--output", "json")...)
	c := startChild(t, args...)
	c.want(t, 0)
	nothingLeft(t, dir)
	var r measure.Report
	if err := json.Unmarshal([]byte(c.out.String()), &r); err != nil {
		t.Fatalf("%v\n%s", err, c.out.String())
	}
	return &r
}

// nothingLeft fails the test if a benchmark has left files or processes behind.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if pids := users(t, dir); len(pids) > 0 {
		t.Errorf("processes that still use %s: %v", dir, pids)
	}
}

// users returns the processes that have a directory in their command line.
func users(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), dir) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

// figures fails the test unless the report has all figures, each above 0.
func figures(t *testing.T, r *measure.Report, names ...string) {
	t.Helper()
	for _, name := range names {
		if v, ok := r.Figure(name); !ok || v <= 0 {
			t.Errorf("%s is %v, %v in %+v", name, v, ok, r.Figures)
		}
	}
}

// complete fails the test unless the report has what every report has.
func complete(t *testing.T, r *measure.Report) {
	t.Helper()
	m, ok := r.Machine.(map[string]any)
	if !ok {
		t.Fatalf("machine: %v", r.Machine)
	}
	for _, name := range []string{"holdfast", "go", "os", "kernel", "cores", "gomaxprocs", "memory_bytes", "file_system"} {
		if v := m[name]; v == nil || v == "" || v == 0.0 {
			t.Errorf("%s of the machine is %v", name, v)
		}
	}
	if len(r.Ceilings) < 2 || r.Ceilings[0].Latency == nil || r.Ceilings[0].Rate <= 0 {
		t.Errorf("ceilings: %+v", r.Ceilings)
	}
	if r.Options["payload"] != "100B" || len(r.Series) == 0 {
		t.Errorf("options %v, series %v", r.Options, r.Series)
	}
}

var short = []string{"--duration", "300ms", "--warmup", "100ms"}

func with(args ...string) []string { return append(args, short...) }

func TestSend(t *testing.T) {
	r := report(t, with("send", "--window", "100", "--senders", "2", "--runs", "2")...)
	complete(t, r)
	figures(t, r, "sent and acknowledged", "messages a frame", "broker processor time", "broker memory (RSS), highest", "storage written ÷ user bytes")
	if f := r.Figures[0]; len(f.Values) != 2 || f.Min > f.Median || f.Median > f.Max {
		t.Errorf("%+v", f)
	}
	if l := r.Latency("send to acknowledgement"); l == nil || l.Count == 0 || l.P50 <= 0 || l.P50 > l.Max {
		t.Errorf("%+v", l)
	}
	if len(r.Ceilings) != 3 || r.Ceilings[2].Rate <= 0 || len(r.Ratios) != 2 {
		t.Errorf("%+v %+v", r.Ceilings, r.Ratios)
	}
}

func TestSendBlocking(t *testing.T) {
	figures(t, report(t, with("send", "--window", "32", "--blocking", "--network", "unix")...), "sent and acknowledged")
}

// What is received and what is left is what was sent, with several queues, senders and receivers.
func TestPipeline(t *testing.T) {
	for _, more := range [][]string{{"--queues", "3", "--senders", "2", "--receivers", "2"}, {"--embedded"}, {"--one-process"}, {"--rate", "2000", "--durability", "buffered"}} {
		t.Run(strings.Join(more, " "), func(t *testing.T) {
			r := report(t, with(append([]string{"pipeline"}, more...)...)...)
			complete(t, r)
			figures(t, r, "sent and acknowledged", "received and acknowledged")
			if l := r.Latency("send to handler"); l == nil || l.Count == 0 {
				t.Errorf("%+v", r.Latencies)
			}
			if len(r.Notes) > 0 {
				t.Error(r.Notes)
			}
		})
	}
}

// The rate is kept, and every message's latency is counted.
func TestLatency(t *testing.T) {
	r := report(t, with("latency", "--rate", "500", "--queues", "2", "--background")...)
	complete(t, r)
	figures(t, r, "received and acknowledged", "received in the background")
	// 2 queues, 0.3 s; the machine may be busy, and what is under way at the ends may or may not count.
	if l := r.Latency("send to handler"); l == nil || l.Count < 200 || l.Count > 400 {
		t.Errorf("%+v", l)
	}
	if l := r.Ceiling("bare: framed connection into one synced log"); l == nil || l.Latency == nil || l.Latency.P50 <= 0 {
		t.Errorf("%+v", r.Ceilings)
	}
	if len(r.Ratios) != 12 {
		t.Errorf("%+v", r.Ratios)
	}
}

func TestReceive(t *testing.T) {
	r := report(t, "receive", "--messages", "20000", "--receivers", "2", "--senders", "2")
	complete(t, r)
	figures(t, r, "sent and acknowledged", "received and acknowledged")
}

func TestBacklog(t *testing.T) {
	r := report(t, "backlog", "--messages", "20000", "--stuck", "1")
	complete(t, r)
	figures(t, r, "sent and acknowledged", "after a stop: start to answer", "after a stop: start to first message", "after SIGKILL: start to first message",
		"received and acknowledged", "broker memory (RSS), full", "storage written ÷ user bytes, all in all")
}

func TestDelivery(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		r := report(t, with("delivery", "--network", network)...)
		complete(t, r)
		figures(t, r, "in one process, confirmed", "over a connection, confirmed", "in one process, time a message")
	}
}

// With a broker that is somebody else's, queues of the benchmark's own are made, and removed at the end.
func TestAddr(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "mine", "x", "--addr", addr).Want(t, 0)
	figures(t, report(t, with("pipeline", "--addr", addr)...), "received and acknowledged")
	figures(t, report(t, "backlog", "--messages", "1000", "--addr", addr), "received and acknowledged")
	list := clitest.Run(t, "queue", "list", "--addr", addr).Want(t, 0)
	if !strings.Contains(list.Out, "mine") || strings.Contains(list.Out, "bench") {
		t.Error(list.Out)
	}
}

// The table and the chart have the machine, the figures and the ceilings.
func TestTableAndChart(t *testing.T) {
	dir := clitest.Dir(t)
	svg := filepath.Join(clitest.Dir(t), "chart.svg")
	c := startChild(t, with("bench", "pipeline", "--dir", dir, "--ceiling-time", "20ms", "--chart", svg)...)
	c.want(t, 0)
	nothingLeft(t, dir)
	for _, want := range []string{"bench pipeline: payload 100B, window 1000", "GOMAXPROCS", "FIGURE", "received and acknowledged", "P99.9", "CEILING", "RATIO"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, c.out.String())
		}
	}
	b, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(b), "<svg ") || !strings.Contains(string(b), "latency by percentile") || !strings.Contains(string(b), "GOMAXPROCS") {
		t.Errorf("%v\n%.300s", err, b)
	}
}

// Ctrl-C ends all processes and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	for _, args := range [][]string{
		{"pipeline", "--duration", "5m", "--no-ceilings"}, {"backlog", "--messages", "100000000", "--no-ceilings"}, {"send", "--ceiling-time", "5m", "--network", "unix"},
	} {
		dir := clitest.Dir(t)
		c := startChild(t, append(append([]string{"bench"}, args...), "--dir", dir)...)
		// Once the directory has something in it, the benchmark is under way.
		await(t, func() bool {
			made, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			return err == nil && len(made) > 0
		})
		c.signal(t, syscall.SIGINT)
		c.want(t, 130)
		nothingLeft(t, dir)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(5*time.Millisecond), time.After(clitest.Patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it does not begin")
		}
	}
}

// What is wrong with the flags is told at once, all of it, and nothing is done.
func TestUsage(t *testing.T) {
	r := clitest.Run(t, "bench", "send", "--payload", "3", "--window", "0", "--addr", "x", "--embedded").WantErr(t, 2, "--payload is 3, want 8")
	if !strings.Contains(r.Err, "--window is 0") || !strings.Contains(r.Err, "--addr and --embedded exclude each other") {
		t.Error(r.Err)
	}
	clitest.Run(t, "bench", "pipeline", "--rate", "-1").WantErr(t, 2, "--rate is -1")
	clitest.Run(t, "bench", "backlog", "--stuck", "90").WantErr(t, 2, "--stuck is 90")
	clitest.Run(t, "bench", "send", "--messages", "1").WantErr(t, 2, "unknown flag")
}

// A broker that does not start is told with its log.
func TestNoBroker(t *testing.T) {
	dir := clitest.Dir(t)
	c := startChild(t, "bench", "send", "--dir", dir, "--no-ceilings", "--journal", "nothing:x")
	c.want(t, 1)
	if !strings.Contains(c.err.String(), "the broker ended") || !strings.Contains(c.err.String(), "not the URL of a journal") {
		t.Error(c.err.String())
	}
	nothingLeft(t, dir)
}
