package clitest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

const victimEnv = "HOLDFAST_TEST_VICTIM"

// A test process that is killed leaves no folder and no process behind.
func TestNothingLeftBehind(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		p, err := proc.Start("sleep", []string{"600"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("has %s %d\n", clitest.Dir(t), p.PID())
		<-p.Done()
		return
	}
	c := exec.Command(os.Args[0], "-test.run", "^TestNothingLeftBehind$")
	c.Env = append(os.Environ(), victimEnv+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	var pid int
	if _, err := fmt.Sscanf(line, "has %s %d", &dir, &pid); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(clitest.Patience); ; <-tick.C {
		_, err := os.Stat(dir)
		stat, noStat := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		gone := noStat != nil || bytes.Contains(stat, []byte(") Z ")) // that nobody has waited for
		if os.IsNotExist(err) && gone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("folder %s gone: %v; process %d gone: %v", dir, os.IsNotExist(err), pid, gone)
		}
	}
}
