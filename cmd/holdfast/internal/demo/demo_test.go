package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/demo"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	}))
}

// The story, told twice as fast: two kills under load, nothing lost (G1, G2), nothing left behind.
func TestStory(t *testing.T) {
	bin, dir := clitest.Binary(t), clitest.Dir(t)
	t.Setenv("TMPDIR", dir)
	var out clitest.Buffer
	a := cli.New(strings.NewReader(""), &out, &bytes.Buffer{})
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	if err := demo.Run(ctx, a, demo.Options{Rate: 400, Second: time.Second / 2, Binary: bin}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"KILL -9: the broker, process", "the broker is up again", "0 lost, 0 never sent", "nothing lost"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the story:\n%s", want, out.String())
		}
	}
	for l := range strings.Lines(out.String()) {
		if !regexp.MustCompile(`^ *\d+\.\ds  \S.*\n$`).MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "holdfast-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// An interruption ends the story, the broker, and its folder.
func TestInterrupted(t *testing.T) {
	bin, dir := clitest.Binary(t), clitest.Dir(t)
	t.Setenv("TMPDIR", dir)
	var out clitest.Buffer
	a := cli.New(strings.NewReader(""), &out, &bytes.Buffer{})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Run(ctx, a, demo.Options{Rate: 100, Second: time.Second, Binary: bin})
		_, _ = out.Write([]byte("acknowledged")) // or not: the error says why
	}()
	out.AwaitText(t, "acknowledged")
	cancel(cli.ErrInterrupted)
	if err := <-ended; !errors.Is(err, cli.ErrInterrupted) || cli.Code(err) != cli.ExitInterrupted {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "holdfast-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A broker that does not start is told, with where its log is.
func TestNoBroker(t *testing.T) {
	t.Setenv("TMPDIR", clitest.Dir(t))
	a := cli.New(strings.NewReader(""), &clitest.Buffer{}, &bytes.Buffer{})
	err := demo.Run(t.Context(), a, demo.Options{Rate: 100, Second: time.Second, Binary: "/bin/false"})
	if err == nil || !strings.Contains(err.Error(), "the broker ended") {
		t.Errorf("%v", err)
	}
	clitest.Run(t, "demo", "--rate", "0").WantErr(t, 2, "--rate is 0")
}
