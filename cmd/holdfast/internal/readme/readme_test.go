package readme

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// block returns the code behind <!-- example: name -->.
func block(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- example: " + name + " -->\n```[a-z]+\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("README.md has no example %q", name)
	}
	return string(m[1])
}

// root returns the top of the checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a command in a folder and returns what it wrote.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// binary builds the command into a folder and returns the folder.
func binary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, filepath.Join(root(t), "cmd/holdfast"), nil, "go", "build", "-o", filepath.Join(dir, "holdfast"), ".")
	return dir
}

// program builds a Go example against the checkout, as a main package of its own in a temporary folder.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(block(t, name)), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "example")
	// The module of the command requires everything that the examples import.
	run(t, filepath.Join(root(t), "cmd/holdfast"), nil, "go", "build", "-o", bin, main)
	return bin
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestShell(t *testing.T) {
	bin, dir := binary(t), t.TempDir()
	env := []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"),
		"HOLDFAST_LISTEN=" + freeAddr(t), "HOLDFAST_HTTP=" + freeAddr(t),
	}
	env = append(env, strings.Replace(env[1], "LISTEN", "ADDR", 1))
	out := run(t, dir, env, "bash", "-c", "set -e\ntrap 'kill $!' EXIT\n"+block(t, "shell"))
	for _, want := range []string{"first order\nsecond\nthird\n", "orders"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestEmbedded(t *testing.T) {
	if out := run(t, t.TempDir(), nil, program(t, "embedded")); !strings.Contains(out, "serve two teas\n") {
		t.Errorf("output: %s", out)
	}
}

func TestDelivery(t *testing.T) {
	if out := run(t, t.TempDir(), nil, program(t, "delivery")); !strings.Contains(out, "got two teas\n") {
		t.Errorf("output: %s", out)
	}
}

// The client's example dials the default address, where a broker of the user may run: so the test puts
// another address in.
func TestClient(t *testing.T) {
	addr := freeAddr(t)
	src := block(t, "client")
	put := strings.Replace(src, "client.Options{}", fmt.Sprintf("client.Options{Addrs: []string{%q}}", addr), 1)
	if put == src {
		t.Fatal("the example has no client.Options{}")
	}
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(put), 0o600); err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(dir, "example")
	run(t, filepath.Join(root(t), "cmd/holdfast"), nil, "go", "build", "-o", example, main)

	var log bytes.Buffer
	serve := exec.CommandContext(t.Context(), filepath.Join(binary(t), "holdfast"), "serve",
		"--journal", "segment:"+filepath.Join(dir, "data"), "--listen", addr, "--http", freeAddr(t))
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(os.Interrupt)
		if err := serve.Wait(); err != nil {
			t.Errorf("serve: %v\n%s", err, &log)
		}
	}()
	await(t, addr)
	if out := run(t, dir, nil, example); !strings.Contains(out, "soup for table 7\n") {
		t.Errorf("output: %s", out)
	}
}

// await waits until somebody listens.
func await(t *testing.T, addr string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
		<-tick.C
	}
	t.Fatalf("nobody listens on %s", addr)
}
