package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeBench measures peers of the tests.
func fakeBench(t *testing.T, names string, runs int) *bench {
	peers, err := find(names)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{env: &env{}, parent: t.TempDir(), out: filepath.Join(t.TempDir(), "x"), runs: runs, loads: []load{short("send", 0), short("pipeline", 0)}, groups: groups(peers),
		table: &table{Facts: "here", Duration: "1s"}}
}

// What fails is told and in the table, and keeps nothing else from being measured.
func TestBenchGoesOn(t *testing.T) {
	b := fakeBench(t, "fake,broken,down", 2)
	err := b.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(), "start down: no such server") {
		t.Error(err)
	}
	for _, r := range b.table.Rows {
		want, figures := 0, len(r.Figures)
		if r.Peer == "fake" {
			want = 2
		}
		if figures != want || figures+len(r.Failed) != 2 {
			t.Errorf("%+v", r)
		}
	}
	if len(b.table.Rows) != 6 {
		t.Errorf("%d rows", len(b.table.Rows))
	}
}

// What was measured until an interruption is kept.
func TestBenchInterrupted(t *testing.T) {
	b := fakeBench(t, "fake,hangs", 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	hangs = func() { cancel(errors.New("that is enough")) }
	err := b.run(ctx)
	if err == nil || !strings.Contains(err.Error(), "only what was measured until then: that is enough") {
		t.Error(err)
	}
	md, err := os.ReadFile(b.out + ".md")
	if err != nil || !strings.Contains(string(md), "| fake | yes, not looked at |") {
		t.Errorf("%v\n%s", err, md)
	}
	if left, err := os.ReadDir(b.parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Runs can be added to a table that was written, if they are of the same kind.
func TestBenchAdds(t *testing.T) {
	first := fakeBench(t, "fake", 2)
	if err := first.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := fakeBench(t, "fake", 1)
	if err := b.goOn(); err == nil {
		t.Error("nothing to add to, and no error")
	}
	b.out = first.out
	if err := b.goOn(); err != nil || b.before != 2 {
		t.Fatalf("%v, %d runs before", err, b.before)
	}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := readTable(b.out)
	if err != nil || again.runs() != 3 || len(again.Rows) != 2 || len(again.Peers) != 1 {
		t.Errorf("%v %+v", err, again)
	}
	other := fakeBench(t, "fake", 1)
	other.out, other.table.Duration = first.out, "2s"
	if err := other.goOn(); err == nil || !strings.Contains(err.Error(), "cannot be added") {
		t.Errorf("runs of another length: %v", err)
	}
}

// An embedded queue is sent to and received from by one process.
func TestMeasureEmbedded(t *testing.T) {
	b := fakeBench(t, "embedded", 1)
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.table.Rows {
		if len(r.Figures) != 1 || r.Figures[0].Total <= 0 || r.Kind == "send" && r.Figures[0].P50 > 0 {
			t.Errorf("%+v", r)
		}
	}
}

// Peers that share a server are one group, wherever they stand.
func TestGroups(t *testing.T) {
	a, b, c, d := &peer{name: "a", shares: "x"}, &peer{name: "b"}, &peer{name: "c", shares: "x"}, &peer{name: "d"}
	got := groups([]*peer{a, b, c, d})
	if len(got) != 3 || !slices.Equal(got[0], []*peer{a, c}) || got[1][0] != b || got[2][0] != d {
		t.Error(got)
	}
	found, err := find("redis,fake")
	if err != nil || len(found) != 3 || found[0].name != "redis-always" || found[1].name != "redis-everysec" {
		t.Errorf("%v %v", found, err)
	}
	if found, err = find("kafka-flush"); err != nil || len(found) != 1 {
		t.Errorf("%v %v", found, err)
	}
}

// The estimate counts what is measured, and how much is left goes down to nothing.
func TestPlan(t *testing.T) {
	loads := []load{{kind: "send", duration: 10 * time.Second}, {kind: "latency", duration: 20 * time.Second}}
	p := newPlan([][]*peer{{{name: "a"}, {name: "b", kinds: []string{"latency"}}}}, loads, 3, true)
	if text := p.announce(); !strings.HasPrefix(text, "9 measurements, about 3 min") {
		t.Error(text)
	}
	last := ""
	for range 9 {
		last = p.done()
	}
	if last != "  9 of 9, 0 s left" {
		t.Errorf("%q", last)
	}
}

// A guard ends what is left when whom it serves has gone, and deletes its directory, but nothing that is gone already.
func TestGuard(t *testing.T) {
	g, err := startGuard()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{guard: g}
	parent := t.TempDir()
	dir, err := e.newDir(parent, "left")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := e.newDir(parent, "gone")
	if err = errors.Join(err, e.removeDir(gone), os.Mkdir(gone, 0o755)); err != nil {
		t.Fatal(err)
	}
	s, err := e.serve(dir, "here", "sh", "-c", "sleep 600 & wait")
	if err != nil {
		t.Fatal(err)
	}
	ended, err := e.serve(parent, "here", "true")
	if err != nil {
		t.Fatal(err)
	}
	<-ended.done
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if err := syscall.Kill(-s.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the server's group: %v", err)
	}
	if left, err := filepath.Glob(parent + "/*"); err != nil || !slices.Equal(left, []string{gone, filepath.Join(parent, "server.log")}) {
		t.Errorf("left: %v %v", left, err)
	}
	if err := errors.Join(s.log.Close(), ended.log.Close()); err != nil {
		t.Error(err)
	}
	(*guard)(nil).tell(guarded{Dir: dir})
}

// The syncs of a process are counted, and those of one that does not sync are none.
func TestCountSyncs(t *testing.T) {
	for want, how := range []string{"none", "fsync", "fdatasync"} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Dir = append(os.Environ(), "PEERS_TEST_SYNCS="+how), dir
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		await := func() error { _, err := out.Read(make([]byte, 1)); return err }
		if err := await(); err != nil {
			t.Fatal(err)
		}
		n, err := countSyncs(t.Context(), dir, 0, func() error {
			_, err := in.Write([]byte("x"))
			return errors.Join(err, await())
		})
		if want := min(want, 1) * 7; err != nil || n != want {
			t.Errorf("%s: %d syncs, %v", how, n, err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if _, err := countSyncs(t.Context(), t.TempDir(), 0, nil); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("nobody works there: %v", err)
	}
	for line, want := range map[string]bool{
		"12 fsync(5) = 0": true, "12 fdatasync(5 <unfinished ...>": true, "12 <... fdatasync resumed>) = 0": false, "12 msync(0x7f, 4096, MS_ASYNC) = 0": false, "12 msync(0x7f, 4096, MS_SYNC) = 0": true,
	} {
		if isSync(line) != want {
			t.Errorf("%q", line)
		}
	}
}

// syncSeven is a process that syncs a file seven times once it is told to.
func syncSeven(how string) error {
	f, err := os.Create("file")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file is for nobody
	told := make([]byte, 1)
	for round := 0; ; round++ {
		if _, err := os.Stdout.Write([]byte("x")); err != nil {
			return err
		}
		if _, err := os.Stdin.Read(told); err != nil {
			return nil
		}
		for i := range 7 {
			_, err := f.WriteString(strconv.Itoa(i))
			switch how {
			case "fsync":
				err = errors.Join(err, f.Sync())
			case "fdatasync":
				err = errors.Join(err, syscall.Fdatasync(int(f.Fd())))
			}
			if err != nil {
				return err
			}
		}
	}
}

// Answers are passed on in the order of the sends, and no more than the window is on its way.
func TestInOrder(t *testing.T) {
	o := newInOrder(3)
	var open, most, next atomic.Int64
	answers := make(chan struct{}, 100)
	go func() {
		for range 100 {
			answers <- struct{}{}
		}
	}()
	for i := range int64(100) {
		err := o.send(t.Context(), func() (func() error, error) {
			if open.Add(1) > 3 {
				most.Add(1)
			}
			return func() error { <-answers; open.Add(-1); return nil }, nil
		}, func(err error) {
			if next.Add(1) != i+1 || err != nil {
				t.Errorf("answer %d: %v", i, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	no := errors.New("no")
	if err := o.send(t.Context(), func() (func() error, error) { return nil, no }, nil); !errors.Is(err, no) {
		t.Error(err)
	}
	if err := o.flush(t.Context()); err != nil || next.Load() != 100 || most.Load() > 0 {
		t.Errorf("%v: %d answers, %d times too many on their way", err, next.Load(), most.Load())
	}
}

// A client that is to send a number of messages ends after it, and one that receives as well counts what is received.
func TestClientCounts(t *testing.T) {
	in, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(tell.Close(), in.Close()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := tell.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := client(t.Context(), spec{Peer: "fake", Send: true, Payload: 8, Window: 1, Count: loneSends}, in, &out); err != nil || !strings.Contains(out.String(), `"total":100`) {
		t.Errorf("%v %s", err, out.String())
	}
}
