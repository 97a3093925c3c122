package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// loneSends is how many messages are sent one by one to see whether each is synced before it is answered.
const loneSends = 100

// countSyncs counts the syncs that the processes which work in a directory, or the given one, make while f runs.
func countSyncs(ctx context.Context, dir string, pid int, f func() error) (n int, err error) {
	pids := []int{pid}
	if pid == 0 {
		if pids, err = usersOf(dir); err != nil {
			return 0, err
		}
	}
	out, err := os.CreateTemp("", "syncs-")
	if err != nil {
		return 0, fmt.Errorf("count syncs: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close(), os.Remove(out.Name())) }()
	args := []string{"-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-o", out.Name()}
	for _, p := range pids {
		args = append(args, "-p", strconv.Itoa(p))
	}
	var said bytes.Buffer
	cmd := exec.Command("strace", args...)
	cmd.Stderr = &said
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("count syncs: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it ends by the signal that it is sent
		close(ended)
	}()
	stop := func() {
		_ = cmd.Process.Signal(os.Interrupt) // what has ended cannot be signalled
		<-ended
	}
	defer stop()
	if err := awaitTraced(ctx, pids, cmd.Process.Pid, ended); err != nil {
		return 0, fmt.Errorf("count syncs: %w: %s", err, said.String())
	}
	if err := f(); err != nil {
		return 0, err
	}
	stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if isSync(lines.Text()) {
			n++
		}
	}
	return n, lines.Err()
}

// isSync tells whether a line of strace is the beginning of a call that syncs a file. Syncing mapped memory without waiting is none.
func isSync(line string) bool {
	return strings.Contains(line, "fsync(") || strings.Contains(line, "fdatasync(") || strings.Contains(line, "msync(") && strings.Contains(line, "MS_SYNC")
}

// awaitTraced waits until all threads of the processes are traced.
func awaitTraced(ctx context.Context, pids []int, by int, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	mark := fmt.Sprintf("TracerPid:\t%d\n", by)
	for {
		missing := 0
		for _, p := range pids {
			tasks := glob(fmt.Sprintf("/proc/%d/task/*/status", p))
			for _, t := range tasks {
				if b, err := os.ReadFile(t); err == nil && !strings.Contains(string(b), mark) {
					missing++
				}
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-ended:
			return errors.New("strace has ended")
		case <-ctx.Done():
			return fmt.Errorf("strace does not trace %d threads: %w", missing, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// usersOf returns the processes, but this one, that work in a directory or have files of it open.
func usersOf(dir string) (pids []int, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("find the processes of %s: %w", dir, err)
	}
	for _, p := range glob("/proc/[0-9]*") {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		files := glob(p + "/fd/*") // none of a process that has ended meanwhile
		for _, f := range append(files, p+"/cwd") {
			if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, dir+"/") || to == dir {
				pids = append(pids, pid)
				break
			}
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process works in %s: %w", dir, syscall.ESRCH)
	}
	return pids, nil
}

// sendSingly sends a hundred messages, each once the one before is answered, in a process of its own, and counts the syncs meanwhile.
func sendSingly(ctx context.Context, e *env, p *peer, s *server, queue string) (n int, err error) {
	one, err := startClient(ctx, e, p, spec{Peer: p.name, Addr: s.addr, Queue: queue, Send: true, Payload: 100, Window: 1, Count: loneSends})
	if err != nil {
		return 0, err
	}
	defer one.kill()
	pid := 0
	if p.embedded {
		pid = one.cmd.Process.Pid
	}
	return countSyncs(ctx, s.dir, pid, func() error {
		one.tell("go")
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		r, err := one.wait(ctx)
		if err == nil && r.Total != loneSends {
			err = fmt.Errorf("%d of %d messages were sent", r.Total, loneSends)
		}
		return err
	})
}
