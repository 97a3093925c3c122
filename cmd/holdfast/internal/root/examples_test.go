package root_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// step is a command of an example, and what it is shown to print.
type step struct{ command, output string }

// examples returns the steps of the console blocks of a page.
func examples(t *testing.T, path string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for l := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(l, "$ "); ok {
				steps = append(steps, step{command: command})
			} else if len(steps) > 0 {
				steps[len(steps)-1].output += l
			}
		}
	}
	return steps
}

// matches compares an output with what is shown, in which … stands for anything within a line.
func matches(shown, got string) bool {
	// Columns are as wide as what is in them.
	blanks := regexp.MustCompile(" {2,}")
	shown, got = blanks.ReplaceAllString(shown, "  "), blanks.ReplaceAllString(got, "  ")
	pattern := strings.ReplaceAll(regexp.QuoteMeta(shown), "…", "[^\n]*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

const marker = "-- end of step --"

// The examples of the documentation are run as they stand there, by a shell, with the real binary.
func TestExamples(t *testing.T) {
	steps := examples(t, "../../../../docs/command-line.md")
	if len(steps) == 0 {
		t.Fatal("there is no example")
	}
	sh := shell(t)
	in, err := sh.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	sh.Stderr = sh.Stdout
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(clitest.Patience, func() { _ = sh.Process.Kill() })
	defer kill.Stop()
	lines := bufio.NewReader(out)
	for _, s := range steps {
		if _, err := io.WriteString(in, s.command+"echo '"+marker+"'\n"); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for {
			l, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("$ %sends early: %v\n%s", s.command, err, got.String())
			}
			if l == marker+"\n" {
				break
			}
			got.WriteString(l)
		}
		if !matches(s.output, got.String()) {
			t.Errorf("$ %sprints\n%sbut the page shows\n%s", s.command, got.String(), s.output)
		}
	}
	if _, err := io.WriteString(in, "kill $(jobs -p); wait; exit 0\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if err := sh.Wait(); err != nil {
		t.Fatal(err)
	}
}

// shell is a shell in a folder of its own, with the real binary on its path and addresses that nobody else uses.
func shell(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir, bin := clitest.Dir(t), clitest.Binary(t)
	sh := exec.Command("bash", args...)
	sh.Dir = dir
	sock := "unix:" + filepath.Join(dir, "s")
	sh.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"),
		"HOLDFAST_ADDR="+sock, "HOLDFAST_LISTEN="+sock, "HOLDFAST_HTTP=unix:"+filepath.Join(dir, "h"))
	return sh
}
