package receive_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

func send(t *testing.T, addr, queue string, bodies ...string) {
	t.Helper()
	clitest.Run(t, append([]string{"send", queue, "--addr", addr, "--"}, bodies...)...).Want(t, 0)
}

// stats returns what "queue describe" counts.
func stats(t *testing.T, addr, queue string) map[string]float64 {
	t.Helper()
	r := clitest.Run(t, "queue", "describe", queue, "--addr", addr, "--output", "json").Want(t, 0)
	var o struct{ Messages, Counters map[string]float64 }
	if err := json.Unmarshal([]byte(r.Out), &o); err != nil {
		t.Fatal(err)
	}
	for k, v := range o.Counters {
		o.Messages[k] = v
	}
	return o.Messages
}

// The three forms of output (§10). Each message is acknowledged once it is written.
func TestOutputs(t *testing.T) {
	addr, _ := clitest.Serve(t)
	send(t, addr, "q", "one", "two\nlines", "\xff\x00")
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1").WantOut(t, "one\n")
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--output", "raw").WantOut(t, "two\nlines")
	r := clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--output", "json").Want(t, 0)
	var m struct {
		ID, Queue  string
		Delivery   int
		Body       *string
		BodyBase64 string `json:"body_base64"`
	}
	if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
		t.Fatal(err)
	}
	body, err := base64.StdEncoding.DecodeString(m.BodyBase64)
	if err != nil || m.Body != nil || string(body) != "\xff\x00" || !strings.HasSuffix(m.ID, "-3") || m.Queue != "q" || m.Delivery != 1 || strings.Count(r.Out, "\n") != 1 {
		t.Errorf("%s", r.Out)
	}
	if s := stats(t, addr, "q"); s["acked"] != 3 || s["depth"] != 0 || s["delivered"] != 3 {
		t.Errorf("%v", s)
	}
}

// --count and --wait: exit 1 if the count was not reached, 0 if there was none; never more is leased than asked for.
func TestCountAndWait(t *testing.T) {
	addr, _ := clitest.Serve(t)
	send(t, addr, "q", "1", "2", "3", "4", "5")
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "2").WantOut(t, "1\n2\n")
	if s := stats(t, addr, "q"); s["delivered"] != 2 || s["released"] != 0 || s["depth"] != 3 {
		t.Errorf("more was leased than --count: %v", s)
	}
	r := clitest.Run(t, "receive", "q", "--addr", addr, "--count", "4", "--wait", "200ms").WantErr(t, 1, "3 of 4 messages came, and none within the last 200ms")
	if r.Out != "3\n4\n5\n" {
		t.Error(r.Out)
	}
	clitest.Run(t, "receive", "q", "--addr", addr, "--wait", "100ms").WantOut(t, "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"receive"}, "receive takes QUEUE, and got 0 arguments"},
		{[]string{"receive", "a b"}, "queue name has ' '"},
		{[]string{"receive", "q", "--count", "-1"}, "--count is -1"},
		{[]string{"receive", "q", "--workers", "0"}, "--workers is 0"},
		{[]string{"receive", "q", "--workers", "2"}, "--workers goes with --exec"},
		{[]string{"receive", "q", "--output", "xml"}, `"xml" is none of body, raw, json`},
		{[]string{"receive", "q", "--no-ack", "--exec", "true"}, "exclude each other"},
		{[]string{"receive", "q", "--no-ack", "--output", "raw"}, "no place"},
		{[]string{"receive", "q", "--exec", "true", "--output", "json"}, "exclude each other"},
		{[]string{"receive", "q", "--visibility", "1ms"}, "--visibility is 1ms, want 1s to 12h"},
	} {
		clitest.Run(t, append(c.args, "--addr", addr)...).WantErr(t, 2, c.want)
	}
}

// A queue that does not exist is made, and told: its name may be mistyped.
func TestMissingQueue(t *testing.T) {
	addr, _ := clitest.Serve(t)
	const told = "queue typo: it did not exist before"
	clitest.Run(t, "receive", "typo", "--wait", "50ms", "--addr", addr).WantErr(t, 0, told)
	if r := clitest.Run(t, "receive", "typo", "--wait", "50ms", "--addr", addr).Want(t, 0); strings.Contains(r.Err, told) {
		t.Error(r.Err)
	}
}

// failingWriter takes some bytes and then no more.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("no room")
	}
	return len(p), nil
}

// Whoever reads the output and has had enough, as "head -1", is noticed also while there is nothing to write (G9); what comes later is left in the queue.
func TestReaderGone(t *testing.T) {
	addr, _ := clitest.Serve(t)
	send(t, addr, "q", "first")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	j := clitest.Start(t, clitest.Options{Out: w}, "receive", "q", "--addr", addr)
	buf := make([]byte, 6)
	if _, err := io.ReadFull(r, buf); err != nil || string(buf) != "first\n" {
		t.Fatalf("%q, %v", buf, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	j.Wait(t).WantErr(t, 1, "write messages: write |1: broken pipe")
	send(t, addr, "q", "second")
	if s := stats(t, addr, "q"); s["depth"] != 1 || s["acked"] != 1 {
		t.Errorf("%v", s)
	}
}

// What could not be written is not acknowledged: nothing is lost (§10: acks after the output is written).
func TestOutputFails(t *testing.T) {
	addr, _ := clitest.Serve(t)
	send(t, addr, "q", "first", strings.Repeat("x", 200), "third")
	j := clitest.Start(t, clitest.Options{Out: &failingWriter{100}}, "receive", "q", "--addr", addr)
	j.Wait(t).WantErr(t, 1, "write messages: no room")
	s := stats(t, addr, "q")
	if s["depth"]+s["acked"] != 3 || s["depth"] < 2 || s["in_flight"] != 0 {
		t.Errorf("%v", s)
	}
}

// --no-ack prints receipts, whose leases outlive the connection, for ack, nack and extend.
func TestReceipts(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "queue", "create", "q", "--retry-first", "0s", "--addr", addr).Want(t, 0)
	send(t, addr, "q", "a", "b", "c", "d")
	r := clitest.Run(t, "receive", "q", "--addr", addr, "--count", "4", "--no-ack").Want(t, 0)
	var receipts []string
	for i, l := range strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n") {
		receipt, body, ok := strings.Cut(l, "\t")
		if !ok || body != string(rune('a'+i)) {
			t.Fatalf("%q", r.Out)
		}
		receipts = append(receipts, receipt)
	}
	if s := stats(t, addr, "q"); s["in_flight"] != 4 {
		t.Fatalf("leases did not outlive the connection: %v", s)
	}
	clitest.Run(t, "extend", "q", receipts[0], "--by", "1h", "--addr", addr).WantOut(t, receipts[0]+"\tdone\n")
	clitest.Run(t, "ack", "q", receipts[0], receipts[1], "--addr", addr).WantOut(t, receipts[0]+"\tdone\n"+receipts[1]+"\tdone\n")
	clitest.Run(t, "ack", "q", receipts[1], "--addr", addr).WantOut(t, receipts[1]+"\tgone\n")
	clitest.Run(t, "nack", "q", receipts[2], "--delay", "0s", "--addr", addr).WantOut(t, receipts[2]+"\tdone\n")
	lost := clitest.Run(t, "ack", "q", receipts[2], "--addr", addr).WantErr(t, 1, "lease lost")
	if lost.Out != receipts[2]+"\tlost\n" {
		t.Error(lost.Out)
	}
	// The output of receive can be given as it is.
	clitest.RunIn(t, receipts[3]+"\tbody\n\n", "ack", "q", "-", "--addr", addr).WantOut(t, receipts[3]+"\tdone\n")
	again := clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--no-ack", "--output", "json").Want(t, 0)
	var m struct {
		Receipt, Body string
		Delivery      int
	}
	if err := json.Unmarshal([]byte(again.Out), &m); err != nil || m.Body != "c" || m.Delivery != 2 || m.Receipt == receipts[2] {
		t.Errorf("%s", again.Out)
	}
	clitest.Run(t, "ack", "q", m.Receipt, "--addr", addr).Want(t, 0)

	clitest.Run(t, "ack", "q", "nonsense", "--addr", addr).WantErr(t, 2, `receipt "nonsense" is not one`)
	send(t, addr, "other", "x")
	clitest.Run(t, "ack", "other", receipts[0], "--addr", addr).WantErr(t, 1, "is of another queue")
	clitest.Run(t, "ack", "missing", receipts[0], "--addr", addr).WantErr(t, 1, "no such queue")
}

// script is a command that writes what it learns of its message into a folder.
const script = `cat >"$OUT/body-$HOLDFAST_DELIVERY"; echo "$HOLDFAST_MSG_ID $HOLDFAST_QUEUE $HOLDFAST_DELIVERY $HOLDFAST_HEADERS $HOLDFAST_HEADERS_BASE64" >"$OUT/env-$HOLDFAST_DELIVERY"; [ "$HOLDFAST_DELIVERY" -ge 3 ]`

// --exec: the body on standard input, the rest in the environment; acknowledged if and only if it exits with 0.
func TestExec(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	t.Setenv("OUT", dir)
	clitest.Run(t, "queue", "create", "q", "--retry-first", "0s", "--addr", addr).Want(t, 0)
	clitest.RunIn(t, "the\nbody\xff", "send", "q", "--header", "path=a/b c", "--header", "x=\xfe", "--addr", addr).Want(t, 0)
	r := clitest.Run(t, "receive", "q", "--addr", addr, "--wait", "300ms", "--exec", script).Want(t, 0)
	if strings.Count(r.Err, "the command failed: exit status 1") != 2 || !strings.Contains(r.Err, "3 received, 1 acknowledged, 2 failed") {
		t.Error(r.Err)
	}
	for n := 1; n <= 3; n++ {
		body, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("body-", n)))
		if err != nil || string(body) != "the\nbody\xff" {
			t.Errorf("delivery %d: %q %v", n, body, err)
		}
		env, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("env-", n)))
		want := fmt.Sprintf(` q %d {"path":"a/b c","x":"%s"} [["cGF0aA==","YS9iIGM="],["eA==","/g=="]]`+"\n", n, "\uFFFD")
		if err != nil || !strings.HasSuffix(string(env), want) {
			t.Errorf("delivery %d: %q %v, want %q", n, env, err, want)
		}
	}
	if s := stats(t, addr, "q"); s["depth"] != 0 || s["nacked"] != 2 || s["acked"] != 1 {
		t.Errorf("%v", s)
	}
	// With --count, a failure is one of the command's.
	send(t, addr, "q", "x")
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--exec", "exit 7").WantErr(t, 1, "the command failed for 1 of 1 messages")
	// What the command prints is printed.
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--exec", `echo "got $(cat)"`).WantOut(t, "got x\n")
}

// Never more commands run at once than --workers, nor are more messages held than they work on.
func TestExecWorkers(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	t.Setenv("OUT", dir)
	var bodies []string
	for i := range 40 {
		bodies = append(bodies, strconv.Itoa(i))
	}
	send(t, addr, "q", bodies...)
	// Each command notes how many there are while it runs.
	const count = `: >"$OUT/run.$$"; ls "$OUT" | grep -c '^run' >>"$OUT/seen"; cat >"$OUT/body.$$"; rm "$OUT/run.$$"`
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "40", "--workers", "4", "--exec", count).Want(t, 0)
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, l := range strings.Fields(string(seen)) {
		n, err := strconv.Atoi(l)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most > 4 || most < 2 {
		t.Errorf("up to %d commands ran at once, with 4 workers", most)
	}
	if s := stats(t, addr, "q"); s["acked"] != 40 || s["delivered"] != 40 || s["released"] != 0 {
		t.Errorf("%v", s)
	}
}

// An interruption lets the running command finish, and acknowledges its message; nothing else is touched.
func TestInterruptExec(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	t.Setenv("OUT", dir)
	send(t, addr, "q", "one", "two")
	const wait = `echo started >&2; while [ ! -e "$OUT/go" ]; do sleep 0.02; done`
	j := clitest.Start(t, clitest.Options{}, "receive", "q", "--addr", addr, "--exec", wait)
	j.Err.AwaitText(t, "started")
	j.Interrupt()
	j.Err.AwaitText(t, "interrupted: waiting for 1 running command")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.Wait(t).WantErr(t, 130, "interrupted")
	if s := stats(t, addr, "q"); s["acked"] != 1 || s["ready"] != 1 || s["delivered"] != 1 {
		t.Errorf("%v", s)
	}
	// A second interruption stops the command; its message is given back uncounted.
	j = clitest.Start(t, clitest.Options{}, "receive", "q", "--addr", addr, "--exec", "echo started >&2; exec sleep 600")
	j.Err.AwaitText(t, "started")
	j.Interrupt()
	j.Hurry()
	j.Wait(t).WantErr(t, 130, "stopped: interrupted again")
	if s := stats(t, addr, "q"); s["ready"] != 1 || s["nacked"] != 0 || s["in_flight"] != 0 {
		t.Errorf("%v", s)
	}
	clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1").WantOut(t, "two\n")
}

// An interruption while nothing comes, and one while messages wait to be written.
func TestInterruptPrint(t *testing.T) {
	addr, _ := clitest.Serve(t)
	j := clitest.Start(t, clitest.Options{}, "receive", "q", "--addr", addr)
	send(t, addr, "q", "one")
	j.Out.AwaitText(t, "one\n")
	j.Interrupt()
	j.Wait(t).Want(t, 130)
	if s := stats(t, addr, "q"); s["acked"] != 1 || s["receivers"] != 0 {
		t.Errorf("%v", s)
	}
}

// A command that outlasts the visibility timeout runs once: its lease is renewed.
func TestExecSlow(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	t.Setenv("OUT", dir)
	clitest.Run(t, "queue", "create", "q", "--visibility", "1s", "--addr", addr).Want(t, 0)
	send(t, addr, "q", "x")
	clitest.Run(t, "receive", "q", "--addr", addr, "--wait", "1200ms", "--workers", "2", "--exec", `echo run >>"$OUT/runs"; sleep 3`).Want(t, 0)
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil || string(runs) != "run\n" {
		t.Errorf("%q %v", runs, err)
	}
	if s := stats(t, addr, "q"); s["acked"] != 1 || s["delivered"] != 1 || s["lease_expired"] != 0 {
		t.Errorf("%v", s)
	}
}

// A lease that is lost stops the command, and its message is not acknowledged.
func TestExecLoses(t *testing.T) {
	addr, _ := clitest.Serve(t)
	send(t, addr, "q", "x")
	j := clitest.Start(t, clitest.Options{}, "receive", "q", "--addr", addr, "--count", "1", "--exec", "echo started >&2; exec sleep 600")
	j.Err.AwaitText(t, "started")
	clitest.Run(t, "queue", "purge", "q", "--yes", "--addr", addr).WantOut(t, "1\n")
	j.Wait(t).WantErr(t, 0, "its command was stopped: lease lost")
}
