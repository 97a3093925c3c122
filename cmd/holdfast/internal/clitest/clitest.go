// Package clitest runs the binary's commands in tests: in this process, or as the real binary.
package clitest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/root"
)

// Patience is how long anything may take before a test gives up.
const Patience = 3 * time.Minute

// Buffer collects what is written, and lets others wait for it. It can be used concurrently.
type Buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Len returns how many bytes were written so far.
func (b *Buffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Len()
}

// Await waits until ok says so of what was written, and returns that.
func (b *Buffer) Await(t testing.TB, what string, ok func(text string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		b.mu.Lock()
		text := b.b.String()
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if ok(text) {
			return text
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s did not come; there is only:\n%s", what, text)
		}
	}
}

// AwaitText waits until a text was written.
func (b *Buffer) AwaitText(t testing.TB, text string) {
	t.Helper()
	b.Await(t, fmt.Sprintf("%q", text), func(have string) bool { return strings.Contains(have, text) })
}

// Result is how a command ended.
type Result struct {
	Code     int
	Out, Err string
}

// Job is a command that runs in this process.
type Job struct {
	Out, Err *Buffer
	app      *cli.App
	cancel   context.CancelCauseFunc
	done     chan struct{}
	code     int
	name     string
}

// Options are what a command runs with, besides its arguments.
type Options struct {
	// In is its standard input. Default: empty.
	In io.Reader
	// Out is its standard output. Default: a Buffer.
	Out io.Writer
	// Env are variables of its environment. Default: none.
	Env map[string]string
}

// Start starts a command. It is interrupted at the end of the test, if it still runs.
func Start(t testing.TB, o Options, args ...string) *Job {
	t.Helper()
	j := &Job{Out: &Buffer{}, Err: &Buffer{}, done: make(chan struct{}), name: strings.Join(args, " ")}
	if o.In == nil {
		o.In = strings.NewReader("")
	}
	if o.Out == nil {
		o.Out = j.Out
	}
	j.app = cli.New(o.In, o.Out, j.Err)
	j.app.Version = "test"
	j.app.Env = func(name string) (string, bool) { v, ok := o.Env[name]; return v, ok }
	ctx, cancel := context.WithCancelCause(context.Background())
	j.cancel = cancel
	go func() {
		defer close(j.done)
		j.code = root.Run(ctx, j.app, args)
	}()
	t.Cleanup(func() {
		j.Interrupt()
		select {
		case <-j.done:
		case <-time.After(Patience):
			t.Errorf("holdfast %s does not end; its standard error:\n%s", j.name, j.Err)
		}
	})
	return j
}

// Interrupt is a first signal to the command.
func (j *Job) Interrupt() { j.cancel(cli.ErrInterrupted) }

// Hurry is a second one.
func (j *Job) Hurry() { j.app.HurryUp() }

// Done is closed when the command has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait waits until the command has ended.
func (j *Job) Wait(t testing.TB) Result {
	t.Helper()
	select {
	case <-j.done:
	case <-time.After(Patience):
		t.Fatalf("holdfast %s does not end; its standard error:\n%s", j.name, j.Err)
	}
	return Result{j.code, j.Out.String(), j.Err.String()}
}

// Run runs a command to its end.
func Run(t testing.TB, args ...string) Result {
	t.Helper()
	return Start(t, Options{}, args...).Wait(t)
}

// RunIn runs a command with a standard input.
func RunIn(t testing.TB, in string, args ...string) Result {
	t.Helper()
	return Start(t, Options{In: strings.NewReader(in)}, args...).Wait(t)
}

// Want fails the test unless the command ended with an exit code.
func (r Result) Want(t testing.TB, code int) Result {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit code %d, want %d\nstandard output:\n%s\nstandard error:\n%s", r.Code, code, r.Out, r.Err)
	}
	return r
}

// WantOut fails the test unless the command did its work and printed exactly this.
func (r Result) WantOut(t testing.TB, out string) {
	t.Helper()
	if r.Want(t, cli.ExitDone); r.Out != out {
		t.Fatalf("standard output:\n%s\nwant:\n%s", r.Out, out)
	}
}

// WantErr fails the test unless the command ended with an exit code and said a text on standard error.
func (r Result) WantErr(t testing.TB, code int, text string) Result {
	t.Helper()
	if r.Want(t, code); !strings.Contains(r.Err, text) {
		t.Fatalf("standard error:\n%s\nwant %q in it", r.Err, text)
	}
	return r
}

// Serve starts a broker in this process, on a Unix socket, and returns its address once it serves. Without a --journal among args it has
// its messages in memory.
func Serve(t testing.TB, args ...string) (addr string, j *Job) {
	t.Helper()
	addr = "unix:" + filepath.Join(Dir(t), "s")
	all := []string{"serve", "--listen", addr, "--http", ""}
	if !strings.Contains(strings.Join(args, " "), "--journal") {
		all = append(all, "--journal", "memory:")
	}
	j = Start(t, Options{}, append(all, args...)...)
	j.Err.Await(t, "the broker", func(text string) bool {
		select {
		case <-j.done:
			t.Fatalf("the broker ended:\n%s", text)
		default:
		}
		return strings.Contains(text, "broker serves")
	})
	return addr, j
}

// JournalEnv names the environment variable with the scheme of the embedded journal that tests run brokers on, where they have no reason to choose:
// the default, or pebble.
const JournalEnv = "HOLDFAST_TEST_JOURNAL"

// Journal returns the URL of an embedded journal in a directory, on the driver that the environment names, the default if none.
func Journal(dir string) string {
	return cmp.Or(os.Getenv(JournalEnv), journals.DefaultScheme) + ":" + dir
}

// Soak tells that tests run at their full counts.
func Soak() bool { return os.Getenv("HOLDFAST_SOAK") == "1" }

// Get asks the HTTP address of a broker that is a Unix socket for a path, and returns the status and the text.
func Get(t testing.TB, socket, path string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://broker"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
