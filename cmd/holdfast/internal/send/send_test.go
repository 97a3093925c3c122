package send_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// ids returns the lines of an output, which must all be ids, or dashes.
func ids(t *testing.T, out string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if out == "" {
		lines = nil
	}
	id := regexp.MustCompile(`^([0-9a-f]{32}-[0-9]+|-)$`)
	for _, l := range lines {
		if !id.MatchString(l) {
			t.Fatalf("%q is no id", l)
		}
	}
	return lines
}

// received receives what is in a queue, as lines.
func received(t *testing.T, addr, queue string, n int) []string {
	t.Helper()
	if n == 0 {
		clitest.Run(t, "receive", queue, "--addr", addr, "--count", "1", "--wait", "100ms").Want(t, 1)
		return nil
	}
	r := clitest.Run(t, "receive", queue, "--addr", addr, "--count", fmt.Sprint(n), "--wait", "10s").Want(t, 0)
	clitest.Run(t, "receive", queue, "--addr", addr, "--count", "1", "--wait", "100ms").Want(t, 1)
	return strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n")
}

// write feeds a line to a command.
func write(t *testing.T, feed io.Writer, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(feed, line); err != nil {
		t.Fatal(err)
	}
}

// end ends the standard input of a command.
func end(t *testing.T, feed io.Closer) {
	t.Helper()
	if err := feed.Close(); err != nil {
		t.Error(err)
	}
}

// The three forms of input (§10), and the ids in their order.
func TestInputs(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	files := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
	for i, f := range files {
		if err := os.WriteFile(f, []byte(fmt.Sprint("file ", i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		in   string
		args []string
		want []string
	}{
		{"one argument", "", []string{"hello"}, []string{"hello"}},
		{"several arguments", "", []string{"a", "b {n}", "-x"}, []string{"a", "b {n}", "-x"}},
		{"standard input", "a whole text", nil, []string{"a whole text"}},
		{"empty standard input", "", nil, []string{""}},
		{"lines", "one\ntwo\n\nfour", []string{"--lines"}, []string{"one", "two", "", "four"}},
		{"no lines", "", []string{"--lines"}, nil},
		{"some lines", "one\ntwo\nthree\n", []string{"--lines", "--count", "2"}, []string{"one", "two"}},
		{"repeated", "", []string{"--count", "3", "--producer-id", "me", "{sender}:{n}"}, []string{"me:1", "me:2", "me:3"}},
		{"repeated slowly", "", []string{"--count", "3", "--every", "1ms", "m{n}"}, []string{"m1", "m2", "m3"}},
		{"files", "", append([]string{"--files"}, files...), []string{"file 0", "file 1"}},
		{"listed files", files[0] + "\n" + files[1] + "\n", []string{"--files"}, []string{"file 0", "file 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"send", "q", "--addr", addr}
			for _, a := range c.args {
				if a == "-x" {
					args = append(args, "--")
				}
				args = append(args, a)
			}
			r := clitest.RunIn(t, c.in, args...).Want(t, 0)
			if got := ids(t, r.Out); len(got) != len(c.want) {
				t.Errorf("%d ids for %d messages", len(got), len(c.want))
			}
			if got := received(t, addr, "q", len(c.want)); strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What a message can have besides its body arrives.
func TestAttributes(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "q", "--addr", addr, "--header", "b=1", "--header", "a=x=y", "--key", "k", "--priority", "7", "--ttl", "1h", "--dedup-id", "d", "body").Want(t, 0)
	r := clitest.Run(t, "receive", "q", "--addr", addr, "--count", "1", "--output", "json").Want(t, 0)
	want := regexp.MustCompile(`^\{"id":"[0-9a-f]{32}-1","queue":"q","delivery":1,"body":"body","headers":\{"b":"1","a":"x=y"\},"key":"k","dedup_id":"d","priority":7,"ttl":"1h"\}\n$`)
	if !want.MatchString(r.Out) {
		t.Errorf("%s", r.Out)
	}
	// The second one is not stored, and has the id of the first.
	first := clitest.Run(t, "send", "q", "--addr", addr, "--dedup-id", "e", "one").Want(t, 0)
	second := clitest.Run(t, "send", "q", "--addr", addr, "--dedup-id", "e", "two").Want(t, 0)
	if first.Out != second.Out {
		t.Errorf("ids %s and %s", first.Out, second.Out)
	}
	if got := received(t, addr, "q", 1); got[0] != "one" {
		t.Error(got)
	}
}

// Mistakes of the caller exit with 2, say what is wrong, and send nothing (G11).
func TestUsage(t *testing.T) {
	addr, _ := clitest.Serve(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"send"}, "send takes QUEUE [BODY...], and got 0 arguments"},
		{[]string{"send", "bad/name", "x"}, "queue name has '/' at byte 3 (limit: 1 to 80 of [A-Za-z0-9_.-])"},
		{[]string{"send", strings.Repeat("n", 81), "x"}, "queue name has 81 bytes"},
		{[]string{"send", "", "x"}, "queue name is empty"},
		{[]string{"send", "q", "x", "--lines"}, "--lines reads standard input"},
		{[]string{"send", "q", "--lines", "--files"}, "exclude each other"},
		{[]string{"send", "q", "x", "--count", "-1"}, "--count is -1"},
		{[]string{"send", "q", "x", "y", "--every", "1s"}, "repeat one BODY"},
		{[]string{"send", "q", "x", "--every", "fast"}, `"fast" is not a duration`},
		{[]string{"send", "q", "x", "--header", "novalue"}, `--header "novalue" is not name=value`},
		{[]string{"send", "q", "x", "--priority", "10"}, "priority is 10 (limit: 0 to 9)"},
		{[]string{"send", "q", "x", "--delay", "-1s"}, "is not a duration"},
		{[]string{"send", "q", "x", "--delay", "9000d"}, "delay is"},
		{[]string{"send", "q", "x", "y", "--dedup-id", "d"}, "--dedup-id goes with a single message"},
		{[]string{"send", "q", "x", "--producer-id", strings.Repeat("p", 257)}, "--producer-id has 257 bytes"},
		{[]string{"send", "q", "x", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"send", "q", "x", "--journal", "memory:"}, "--addr and --journal exclude each other"},
		{[]string{"send", "q", "x", "--addr", "nonsense"}, "address"},
		{[]string{"send", "q", "x", "--tls-cert", "f"}, "--tls-cert and --tls-key go together"},
	} {
		r := clitest.Run(t, append(c.args, "--addr", addr)...)
		if strings.Contains(strings.Join(c.args, " "), "--addr nonsense") {
			r = clitest.Run(t, c.args...)
		}
		r.WantErr(t, 2, c.want)
		if r.Out != "" {
			t.Errorf("%v: standard output %q", c.args, r.Out)
		}
	}
	received(t, addr, "q", 0)
}

// A message that is too large is refused by name; what was sent before it is stored, and it is said where to resume.
func TestTooLarge(t *testing.T) {
	addr, _ := clitest.Serve(t, "--max-body", "1KiB")
	r := clitest.RunIn(t, "a\nb\n"+strings.Repeat("x", 1025)+"\nd\n", "send", "q", "--lines", "--addr", addr)
	r.WantErr(t, 1, "line 3: send to queue \"q\": not stored: body has 1025 bytes (limit: 1024 bytes)")
	r.WantErr(t, 1, "stored: line 1 to 2")
	r.WantErr(t, 1, "send again from line 3 on")
	if got := ids(t, r.Out); len(got) != 2 {
		t.Errorf("ids %v", got)
	}
	if got := received(t, addr, "q", 2); strings.Join(got, "") != "ab" {
		t.Error(got)
	}
}

// A file that cannot be read ends the sending there.
func TestUnreadableFile(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	ok := filepath.Join(dir, "ok")
	if err := os.WriteFile(ok, []byte("ok"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := clitest.Run(t, "send", "q", "--addr", addr, "--files", ok, filepath.Join(dir, "missing"), ok)
	r.WantErr(t, 1, "read file 2: open ").WantErr(t, 1, "send again from file 2 on")
	if got := received(t, addr, "q", 1); got[0] != "ok" {
		t.Error(got)
	}
}

// A full queue makes the sender wait, which it says; an interruption then tells exactly what is stored (G10), and under a
// producer id the same command goes on from there (G3).
func TestFullInterruptedResumed(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "queue", "create", "q", "--max-messages", "100", "--addr", addr).Want(t, 0)
	var lines []string
	for i := range 250 {
		lines = append(lines, fmt.Sprint("line ", i+1))
	}
	args := []string{"send", "q", "--lines", "--producer-id", "job-1", "--addr", addr}
	in := strings.Join(lines, "\n")
	stored := 0
	var all []string
	for round := range 3 {
		j := clitest.Start(t, clitest.Options{In: strings.NewReader(in)}, args...)
		if round < 2 {
			j.Err.AwaitText(t, "queue q: waiting to send: ")
			j.Interrupt()
			r := j.Wait(t).WantErr(t, 130, "run the same command with the same input again").WantErr(t, 130, "interrupted")
			stored += 100
			r.WantErr(t, 130, fmt.Sprintf("stored: line 1 to %d\n", stored))
			if got := ids(t, r.Out); len(got) != 100 {
				t.Errorf("round %d: %d ids", round, len(got))
			}
			all = append(all, received(t, addr, "q", 100)...)
			continue
		}
		r := j.Wait(t).WantErr(t, 0, "200 messages of this input were stored before, under the producer id job-1; they are left out")
		if got := ids(t, r.Out); len(got) != 50 {
			t.Errorf("%d ids", len(got))
		}
	}
	all = append(all, received(t, addr, "q", 50)...)
	if strings.Join(all, "\n") != in {
		t.Errorf("received %q", all)
	}
	// It is all there: nothing is sent. Other input under the same name is other input.
	r := clitest.RunIn(t, in, args...).WantErr(t, 0, "250 messages of this input were stored before")
	if r.Out != "" {
		t.Error(r.Out)
	}
	// What begins in the same way, and is shorter than what is stored, is not what was sent: nothing is left out in silence.
	for _, short := range []string{lines[0], lines[0] + "\nanother"} {
		clitest.RunIn(t, short, args...).WantErr(t, 2, "this is not the input that was sent before").WantErr(t, 2, "250 are stored under the producer id job-1")
	}
	// So are the same lines sent otherwise.
	clitest.RunIn(t, lines[0], "send", "other", "--producer-id", "job-1", "--addr", addr).Want(t, 0)
	clitest.RunIn(t, lines[0], "send", "other", "--lines", "--producer-id", "job-1", "--addr", addr).Want(t, 0)
	received(t, addr, "other", 2)
	clitest.RunIn(t, "another\n"+in, append(args, "--count", "1")...).Want(t, 0)
	if got := received(t, addr, "q", 1); got[0] != "another" {
		t.Error(got)
	}
}

// With --no-wait a full queue refuses, and nothing behind the refused message is stored.
func TestNoWait(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "queue", "create", "q", "--max-messages", "3", "--addr", addr).Want(t, 0)
	r := clitest.RunIn(t, "1\n2\n3\n4\n5\n", "send", "q", "--lines", "--no-wait", "--addr", addr)
	r.WantErr(t, 1, "queue is full").WantErr(t, 1, "stored: line 1 to 3").WantErr(t, 1, "send again from line 4 on")
	if got := received(t, addr, "q", 3); strings.Join(got, "") != "123" {
		t.Error(got)
	}
}

// Without a broker the command gives up after --timeout, and says so.
func TestNoBroker(t *testing.T) {
	addr := "unix:" + filepath.Join(clitest.Dir(t), "nobody")
	r := clitest.Run(t, "send", "q", "x", "--addr", addr, "--timeout", "1500ms")
	r.WantErr(t, 1, "the broker could not be used for 1.5s").WantErr(t, 1, "waiting to send").WantErr(t, 1, "nothing is stored")
	if strings.Contains(r.Err, "goes on") {
		t.Errorf("it says that sending goes on, and gives up:\n%s", r.Err)
	}
	clitest.Run(t, "queue", "list", "--addr", addr, "--timeout", "200ms").WantErr(t, 1, "no answer within 200ms")
}

// Standard output that is closed ends the sending with an error, and what is stored is told.
func TestOutputCloses(t *testing.T) {
	addr, _ := clitest.Serve(t)
	r, w := io.Pipe()
	in, feed := io.Pipe()
	j := clitest.Start(t, clitest.Options{In: in, Out: w}, "send", "q", "--lines", "--addr", addr)
	write(t, feed, "one")
	if _, err := io.ReadFull(r, make([]byte, 35)); err != nil {
		t.Fatal(err)
	}
	r.CloseWithError(os.ErrClosed)
	write(t, feed, "two")
	j.Wait(t).WantErr(t, 1, "write the ids: ")
	end(t, feed)
	if n := len(received(t, addr, "q", 2)); n != 2 {
		t.Errorf("%d received", n)
	}
}

// An interruption while nothing is under way ends at once, with everything stored.
func TestInterruptIdle(t *testing.T) {
	addr, _ := clitest.Serve(t)
	in, feed := io.Pipe()
	defer end(t, feed)
	j := clitest.Start(t, clitest.Options{In: in}, "send", "q", "--lines", "--addr", addr)
	write(t, feed, "one")
	j.Out.AwaitText(t, "-1\n")
	j.Interrupt()
	j.Wait(t).WantErr(t, 130, "stored: line 1 to 1")

	j = clitest.Start(t, clitest.Options{}, "send", "q", "tick {n}", "--every", "1ms", "--addr", addr)
	j.Out.Await(t, "ids", func(text string) bool { return strings.Count(text, "\n") >= 20 })
	j.Interrupt()
	r := j.Wait(t).Want(t, 130)
	n := len(ids(t, r.Out))
	got := received(t, addr, "q", n+1)
	if last := fmt.Sprint("tick ", n); got[0] != "one" || got[n] != last {
		t.Errorf("%q … %q, want %q", got[0], got[n], last)
	}
}

// The same on a store directly, without a broker.
func TestEmbedded(t *testing.T) {
	url := clitest.Journal(filepath.Join(clitest.Dir(t), "data"))
	if got := ids(t, clitest.Run(t, "send", "q", "a", "b", "--journal", url).Want(t, 0).Out); len(got) != 2 || got[0][:32] != got[1][:32] {
		t.Error(got)
	}
	clitest.Run(t, "receive", "q", "--count", "1", "--journal", url).WantOut(t, "a\n")
	clitest.Run(t, "receive", "q", "--count", "1", "--journal", url).WantOut(t, "b\n")
	clitest.Run(t, "send", "q", "x", "--journal", "nosuch:thing").WantErr(t, 2, "is not the URL of a journal")
}

// A store without room: the command waits for it no longer than --timeout, tells that nothing is stored, and why (G10).
func TestStorageFull(t *testing.T) {
	dir := clitest.Dir(t)
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	// Twice of what is free is to be kept free: there is room for acknowledgements, and none for messages.
	journal := fmt.Sprintf("%s?reserve=%dB", clitest.Journal(dir+"/store"), 2*disk.Bavail*uint64(disk.Bsize))
	clitest.Run(t, "send", "q", "x", "--journal", journal, "--timeout", "1500ms").
		WantErr(t, 1, "queue q: waiting to send: ").WantErr(t, 1, "queue q: nothing is stored").WantErr(t, 1, "could not be used for 1.5s: storage full")
	clitest.Run(t, "send", "q", "x", "--journal", journal, "--no-wait").WantErr(t, 1, "not stored").WantErr(t, 1, "storage full")
	clitest.Run(t, "send", "q", "x", "--journal", clitest.Journal(dir+"/store")).Want(t, 0)
}
