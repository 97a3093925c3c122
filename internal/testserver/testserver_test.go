package testserver

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a process that starts a server and is then killed.
const childEnv = "HOLDFAST_TESTSERVER_CHILD"

// threadsEnv makes the test binary a process of many threads that listens at the address.
const threadsEnv = "HOLDFAST_TESTSERVER_THREADS"

func TestMain(m *testing.M) {
	if addr := os.Getenv(threadsEnv); addr != "" {
		l, err := net.Listen("tcp", addr)
		for range 100 {
			go func() {
				runtime.LockOSThread() // which has a thread to itself then
				select {}
			}()
		}
		fmt.Println(l.Addr(), err)
		select {}
	}
	if os.Getenv(childEnv) != "" {
		s, err := StartOwn("fake")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Dir())
		select {}
	}
	goleak.VerifyTestMain(m)
}

// fakeServers makes a repository with the real lib.sh and supervise, and a server that is a shell with
// a child that left its session, and goes into it.
func fakeServers(t *testing.T) {
	t.Helper()
	real, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "servers")
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lib.sh", "supervise"} {
		text, err := os.ReadFile(filepath.Join(real, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(text))
	}
	head := "#!/usr/bin/env bash\nset -euo pipefail\nserver=fake\n. \"$(dirname \"$0\")/../lib.sh\"\n"
	write("fake/start", head+`
mkdir -p "$1/log"
port=$(port "$1" main)
[[ -z ${FAKE_FAILS:-} ]] || { echo "the disk is on fire" >"$1/log/fake.log"; exit 3; }
if ! node_pid "$1" fake >/dev/null; then
	rm -f "$1/ready"
	setsid bash -c 'setsid sleep 1000 & touch "$0/ready"; wait' "$1" </dev/null >"$1/log/fake.log" 2>&1 &
	note_pid "$1" fake $!
fi
wait_for 20 "$1" fake test -f "$1/ready"
echo "fake://127.0.0.1:$port/${FAKE_PATH:-}"
`)
	write("fake/stop", head+"stop_nodes \"$1\"\n")
	t.Chdir(filepath.Dir(dir))
	t.Setenv("HOLDFAST_TEST_FAKE", "")
}

func startFake(t *testing.T, env ...string) *Server {
	t.Helper()
	s, err := StartOwn("fake", env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// states returns the states of a node's processes, e.g. "SS".
func states(t *testing.T, s *Server) string {
	t.Helper()
	pids, err := s.Processes("fake")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteByte(data[strings.LastIndexByte(string(data), ')')+2])
	}
	return b.String()
}

// until waits for a condition that becomes true by itself.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within 30 s: %s", what)
		}
	}
}

func allGone(pids []int) func() bool {
	return func() bool {
		for _, p := range pids {
			if _, runs := process(p); runs {
				return false
			}
		}
		return true
	}
}

// §12: a server starts with the environment asked for, and goes with Stop, folder and children included.
func TestStartAndStop(t *testing.T) {
	fakeServers(t)
	s := startFake(t, "FAKE_PATH=db")
	if !strings.HasSuffix(s.URL(), "/db") || len(s.URLs()) != 1 || !s.Own() {
		t.Fatalf("URLs %q, own %v", s.URLs(), s.Own())
	}
	pids, err := s.Processes("fake")
	if err != nil || len(pids) != 2 {
		t.Fatalf("processes %v, %v, want a shell and its child", pids, err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	until(t, "its processes gone", allGone(pids))
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Fatalf("the folder after Stop: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatalf("Stop repeated: %v", err)
	}
}

// §12: faults for the drivers: paused whole, resumed, killed whole, and back on its port.
func TestPauseKillRestart(t *testing.T) {
	fakeServers(t)
	s := startFake(t)
	url := s.URL()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	until(t, "both processes stopped", func() bool { return states(t, s) == "TT" })
	if err := s.Resume("fake"); err != nil {
		t.Fatal(err)
	}
	until(t, "both processes going on", func() bool { return states(t, s) == "SS" })
	pids, err := s.Processes("fake")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if !allGone(pids)() {
		t.Fatal("Kill has returned, and a process is there")
	}
	if n := s.Nodes(); len(n) != 0 {
		t.Fatalf("nodes %v after Kill", n)
	}
	if err := s.Pause("fake"); err == nil {
		t.Fatal("a killed node was paused")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url || len(s.Nodes()) != 1 {
		t.Fatalf("after Restart: %s with nodes %v, before it %s", s.URL(), s.Nodes(), url)
	}
}

// §12: Stop ends a server that is paused, too.
func TestStopWhilePaused(t *testing.T) {
	fakeServers(t)
	s := startFake(t)
	pids, err := s.Processes("fake")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	until(t, "its processes gone", allGone(pids))
}

// §12: a server that does not start is a failure that shows its log, and leaves nothing.
func TestStartFails(t *testing.T) {
	fakeServers(t)
	t.Setenv("TMPDIR", t.TempDir())
	_, err := StartOwn("fake", "FAKE_FAILS=1")
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), "failed 3") {
		t.Fatalf("got %v, want the status and the end of the log", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "holdfast-*")); len(left) > 0 {
		t.Fatalf("left %v", left)
	}
	if _, err := StartOwn("nonesuch"); err == nil {
		t.Fatal("a server without a script was started")
	}
}

// §12: a server named by the environment is used, and never touched.
func TestNamedByTheEnvironment(t *testing.T) {
	fakeServers(t)
	t.Setenv(EnvName("fake"), "fake://db.example/x fake://db2.example/x")
	s, err := Start("fake")
	if err != nil {
		t.Fatal(err)
	}
	if s.URL() != "fake://db.example/x" || len(s.URLs()) != 2 || s.Own() {
		t.Fatalf("URLs %q, own %v", s.URLs(), s.Own())
	}
	for what, err := range map[string]error{"pause": s.Pause(), "kill": s.Kill(), "restart": s.Restart()} {
		if err == nil {
			t.Errorf("%s of somebody else's server", what)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

// §12: nothing is left running when the test process is killed.
func TestKilledTestProcess(t *testing.T) {
	fakeServers(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(dir, "/") {
		t.Fatalf("the child says %q, %v", line, err)
	}
	s := &Server{name: "fake", dir: dir}
	pids, err := s.Processes("fake")
	if err != nil || len(pids) != 2 {
		t.Fatalf("processes %v, %v", pids, err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	until(t, "the server's processes gone", allGone(pids))
	until(t, "its folder gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

// A process that was killed is gone only when its last thread is: until then it holds its ports, and another one could not take its place.
func TestGoneWithItsThreads(t *testing.T) {
	addr := "127.0.0.1:0"
	for range 20 {
		c := exec.Command(os.Args[0])
		EndWithTest(c)
		c.Env = append(os.Environ(), threadsEnv+"="+addr)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := bufio.NewReader(out).ReadString('\n')
		if !strings.HasSuffix(said, " <nil>\n") {
			t.Fatalf("the process says %q (%v)", said, err)
		}
		addr = strings.TrimSuffix(said, " <nil>\n")
		if err := signal(c.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := waitGone([]int{c.Process.Pid}); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("its port after it has gone: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // it was killed
	}
}
