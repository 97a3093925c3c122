package queuecmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// squeeze makes the padding of a table one space.
func squeeze(table string) string { return regexp.MustCompile(` {2,}`).ReplaceAllString(table, " ") }

func config(t *testing.T, addr, name string) map[string]any {
	t.Helper()
	r := clitest.Run(t, "queue", "describe", name, "--output", "json", "--addr", addr).Want(t, 0)
	var o struct{ Config map[string]any }
	if err := json.Unmarshal([]byte(r.Out), &o); err != nil {
		t.Fatal(err)
	}
	return o.Config
}

// Create, update (only what is named changes), describe.
func TestConfiguration(t *testing.T) {
	addr, _ := clitest.Serve(t)
	run := func(args ...string) clitest.Result {
		return clitest.Run(t, append(append([]string{"queue"}, args...), "--addr", addr)...)
	}
	run("create", "dead").Want(t, 0)
	r := run("create", "q", "--visibility", "2m", "--max-deliveries", "5", "--dead-letter", "dead", "--max-messages", "1000", "--max-bytes", "1MiB",
		"--overflow", "reject", "--retention", "7d", "--durability", "buffered", "--retry-first", "2s", "--retry-cap", "1m", "--default-delay", "1s", "--dedup-window", "1h")
	r.WantErr(t, 0, "queue q created")
	if r.Out != "" {
		t.Errorf("standard output: %q", r.Out)
	}
	want := map[string]any{
		"visibility_timeout": "2m", "max_deliveries": 5.0, "dead_letter": "dead", "max_messages": 1000.0, "max_bytes": 1048576.0, "overflow": "reject",
		"retention": "7d", "durability": "buffered", "retry_first": "2s", "retry_cap": "1m", "default_delay": "1s", "dedup_window": "1h",
	}
	check := func() {
		t.Helper()
		got := config(t, addr, "q")
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s is %v, want %v", k, got[k], v)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v", got)
		}
	}
	check()
	run("update", "q", "--visibility", "10s", "--dead-letter", "", "--max-messages", "0", "--retry-first", "0s").WantErr(t, 0, "queue q updated")
	want["visibility_timeout"], want["dead_letter"], want["max_messages"], want["retry_first"] = "10s", "", 0.0, "0s"
	check()

	run("create", "dead").Want(t, 0) // as it is
	run("create", "q").WantErr(t, 1, "queue exists with another configuration")
	run("create", "bad", "--visibility", "1ms", "--overflow", "block", "--max-deliveries", "-1").WantErr(t, 2, "--visibility is 1ms (limit: 1s to 12h0m0s)").WantErr(t, 2, "--max-deliveries is -1")
	run("create", "bad", "--overflow", "explode").WantErr(t, 2, `"explode" is none of block, reject, drop-oldest`)
	run("update", "q").WantErr(t, 2, "there is nothing to change")
	run("update", "q", "--visibility", "13h").WantErr(t, 2, "--visibility is 13h")
	run("update", "dead", "--dead-letter", "dead").WantErr(t, 1, "leads back")
	run("describe", "none").WantErr(t, 1, "no such queue")
	run("create", "bad name").WantErr(t, 2, "queue name has ' ' at byte 3")
	run("create").WantErr(t, 2, "queue create takes QUEUE..., and got 0 arguments")
	check()
}

// The table of describe names everything that JSON has.
func TestDescribeTable(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	table := squeeze(clitest.Run(t, "queue", "describe", "q", "--addr", addr).Want(t, 0).Out)
	for _, want := range []string{"queue q\n", "state ready\n", "visibility timeout 30s\n", "durability synced\n", "depth 1\n", "ready 1\n", "sent 1\n", "acked 0\n", "live bytes ", "storage full false\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	var o map[string]any
	r := clitest.Run(t, "queue", "describe", "q", "--addr", addr, "--output", "json").Want(t, 0)
	if err := json.Unmarshal([]byte(r.Out), &o); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"config", "messages", "counters", "present"} {
		for name := range o[group].(map[string]any) {
			if !strings.Contains(table, strings.ReplaceAll(name, "_", " ")) {
				t.Errorf("%s is not in the table", name)
			}
		}
	}
}

func TestList(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "queue", "list", "--addr", addr).WantOut(t, "QUEUE  MESSAGES  READY  IN FLIGHT  DELAYED  PARKED  BYTES  OLDEST  STATE\n")
	clitest.Run(t, "send", "b", "x", "yy", "--addr", addr).Want(t, 0)
	clitest.Run(t, "queue", "create", "a", "--addr", addr).Want(t, 0)
	clitest.Run(t, "queue", "pause", "a", "--addr", addr).WantErr(t, 0, "queue a paused")
	table := squeeze(clitest.Run(t, "queue", "list", "--addr", addr).Want(t, 0).Out)
	if !regexp.MustCompile(`^QUEUE .*\na 0 0 0 0 0 0B - paused\nb 2 2 0 0 0 3B \S+ ready\n$`).MatchString(table) {
		t.Error(table)
	}
	lines := strings.Split(strings.TrimSpace(clitest.Run(t, "queue", "list", "--output", "json", "--addr", addr).Want(t, 0).Out), "\n")
	for i, name := range []string{"a", "b"} {
		var o struct{ Name string }
		if err := json.Unmarshal([]byte(lines[i]), &o); err != nil || o.Name != name {
			t.Errorf("%s: %v", lines[i], err)
		}
	}
}

// Pause stops hand-overs, resume ends that; purge and delete ask before.
func TestPausePurgeDelete(t *testing.T) {
	addr, _ := clitest.Serve(t)
	run := func(args ...string) clitest.Result {
		return clitest.Run(t, append(args, "--addr", addr)...)
	}
	run("send", "q", "1", "2", "3").Want(t, 0)
	run("queue", "pause", "q").Want(t, 0)
	run("receive", "q", "--wait", "100ms").WantOut(t, "")
	run("queue", "resume", "q").WantErr(t, 0, "queue q resumed")
	run("receive", "q", "--count", "1").WantOut(t, "1\n")
	run("queue", "purge", "q").WantErr(t, 2, "confirm it with --yes")
	run("queue", "purge", "q", "--yes").WantErr(t, 0, "queue q: 2 messages purged").WantOut(t, "2\n")
	run("send", "q", "4").Want(t, 0)
	run("queue", "delete", "q").WantErr(t, 2, "confirm it with --yes")
	run("queue", "delete", "q", "--yes").WantErr(t, 0, "queue q deleted")
	run("queue", "describe", "q").WantErr(t, 1, "no such queue")
	run("queue", "delete", "q", "--yes").WantErr(t, 1, "no such queue")
}

// Dead letters, what peek tells of them, and redrive.
func TestPeekAndRedrive(t *testing.T) {
	addr, _ := clitest.Serve(t)
	run := func(args ...string) clitest.Result {
		return clitest.Run(t, append(args, "--addr", addr)...)
	}
	run("queue", "create", "q", "--max-deliveries", "1", "--dead-letter", "dead").Want(t, 0)
	run("send", "q", "poison", "--header", "k=v").Want(t, 0)
	run("receive", "q", "--count", "1", "--exec", "false").Want(t, 1)
	// Wait for the move.
	run("receive", "dead", "--count", "1", "--no-ack", "--visibility", "1s").Want(t, 0)
	table := run("queue", "peek", "dead").Want(t, 0).Out
	if rows := strings.Split(squeeze(table), "\n"); len(rows) != 3 || rows[0] != "SEQ STATE DELIVERIES SIZE STORED DUE BODY" || !strings.HasSuffix(rows[1], "poison") || !strings.Contains(rows[1], "in-flight") {
		t.Error(table)
	}
	var m struct {
		ID, State, Body string
		Deliveries      int
		Headers         map[string]string
		Hops            []struct {
			Queue, Reason string
			Deliveries    int
		}
	}
	r := run("queue", "peek", "dead", "--output", "json").Want(t, 0)
	if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
		t.Fatal(err)
	}
	if m.Body != "poison" || m.Headers["k"] != "v" || len(m.Hops) != 1 || m.Hops[0].Queue != "q" || m.Hops[0].Deliveries != 1 || m.Hops[0].Reason == "" || !strings.HasSuffix(m.ID, "-2") {
		t.Errorf("%s", r.Out)
	}
	run("queue", "peek", "dead", "--state", "parked").WantOut(t, squeezeHeading)
	run("queue", "peek", "dead", "--state", "nowhere").Want(t, 2)
	run("queue", "peek", "dead", "--limit", "1001").WantErr(t, 2, "--limit is 1001")

	run("receive", "dead", "--count", "1", "--exec", "exit 1", "--wait", "5s").Want(t, 1) // it came back
	run("queue", "update", "dead", "--retry-first", "0s").Want(t, 0)
	run("queue", "redrive", "dead", "--limit", "-1").WantErr(t, 2, "--limit is -1")
	run("queue", "redrive", "dead", "--to", "bad name").WantErr(t, 2, "--to has ' ' at byte 3")
	run("queue", "redrive", "dead", "--to", "typo").WantErr(t, 1, "no such queue")
	out := run("queue", "redrive", "dead").WantErr(t, 0, "set on their way").Out
	if out != "1\n" {
		t.Errorf("redriven: %q", out)
	}
	got := run("receive", "q", "--count", "1", "--wait", "10s", "--output", "json").Want(t, 0).Out
	if err := json.Unmarshal([]byte(got), &m); err != nil || m.Body != "poison" || len(m.Hops) != 2 {
		t.Errorf("%s", got)
	}
}

const squeezeHeading = "SEQ  STATE  DELIVERIES  SIZE  STORED  DUE  BODY\n"

func TestWatch(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	r := clitest.Run(t, "queue", "watch", "q", "--every", "1ms", "--count", "3", "--addr", addr).Want(t, 0)
	rows := strings.Split(strings.TrimSpace(squeeze(r.Out)), "\n")
	if len(rows) != 4 || !regexp.MustCompile(`^\d\d:\d\d:\d\d q 1 1 0 - - - \S+ ready$`).MatchString(rows[1]) || !regexp.MustCompile(` q 1 1 0 0 0 0 \S+ ready$`).MatchString(rows[2]) {
		t.Errorf("%q", rows)
	}
	j := clitest.Start(t, clitest.Options{}, "queue", "watch", "--every", "1ms", "--output", "json", "--addr", addr)
	j.Out.AwaitText(t, `"name":"q"`)
	j.Interrupt()
	j.Wait(t).Want(t, 130)
	clitest.Run(t, "queue", "watch", "--every", "0s", "--addr", addr).WantErr(t, 2, "--every is 0")
	clitest.Run(t, "queue", "watch", "none", "--addr", addr).WantErr(t, 1, "no such queue")
}

// On a store directly, list waits until each queue is recovered.
func TestEmbeddedList(t *testing.T) {
	url := clitest.Journal(clitest.Dir(t) + "/data")
	clitest.Run(t, "send", "a", "1", "--journal", url).Want(t, 0)
	clitest.Run(t, "send", "b", "1", "2", "--journal", url).Want(t, 0)
	table := squeeze(clitest.Run(t, "queue", "list", "--journal", url).Want(t, 0).Out)
	if !regexp.MustCompile(`\na 1 1 0 0 0 1B \S+ ready\nb 2 2 0 0 0 2B \S+ ready\n$`).MatchString(table) {
		t.Error(table)
	}
}

// A dead-letter queue that does not exist is told: its name may be mistyped.
func TestDeadLetterMissing(t *testing.T) {
	addr, _ := clitest.Serve(t)
	run := func(args ...string) clitest.Result {
		return clitest.Run(t, append(append([]string{"queue"}, args...), "--addr", addr)...)
	}
	const told = "there is no queue typo yet"
	run("create", "q", "--max-deliveries", "3", "--dead-letter", "typo").WantErr(t, 0, told)
	run("update", "q", "--dead-letter", "typo").WantErr(t, 0, told)
	if r := run("update", "q", "--max-deliveries", "4").Want(t, 0); strings.Contains(r.Err, told) {
		t.Error(r.Err)
	}
	if r := run("list", "--output", "json").Want(t, 0); strings.Contains(r.Out, `"name":"typo"`) {
		t.Error(r.Out)
	}
	run("create", "typo").Want(t, 0)
	if r := run("update", "q", "--dead-letter", "typo").Want(t, 0); strings.Contains(r.Err, told) {
		t.Error(r.Err)
	}
}

// A mistyped directory does not become a store: only what creates something makes one.
func TestNoSuchStore(t *testing.T) {
	dir := filepath.Join(clitest.Dir(t), "typo")
	journal := clitest.Journal(dir)
	for _, args := range [][]string{{"queue", "list"}, {"queue", "describe", "q"}, {"queue", "watch", "--count", "1"}, {"receive", "q", "--wait", "1s"}, {"queue", "purge", "q", "--yes"}} {
		clitest.Run(t, append(args, "--journal", journal)...).WantErr(t, 1, "there is no journal in "+dir)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("%v made something: %v", args, err)
		}
	}
	clitest.Run(t, "queue", "create", "q", "--journal", journal).Want(t, 0)
	clitest.Run(t, "queue", "list", "--journal", journal).Want(t, 0)
	clitest.Run(t, "send", "q", "x", "--journal", journal+"2").Want(t, 0)
}

// Whoever reads the output may have had enough of it.
func TestOutputNotRead(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	for _, args := range [][]string{{"list"}, {"describe", "q"}, {"peek", "q", "--output", "json"}, {"watch"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		j := clitest.Start(t, clitest.Options{Out: w}, append(append([]string{"queue"}, args...), "--addr", addr)...)
		if got := j.Wait(t).Want(t, 0); got.Err != "" {
			t.Errorf("%v: standard error: %s", args, got.Err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
