package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// guard is a process that outlives this one, however that ends, and then ends the servers that are left and deletes their directories.
type guard struct {
	cmd *exec.Cmd

	mu sync.Mutex
	in io.WriteCloser
}

// guarded is what a guard is told: a process group or a directory that is there from now on, or is gone.
type guarded struct {
	Group int    `json:"group,omitempty"`
	Dir   string `json:"dir,omitempty"`
	Gone  bool   `json:"gone,omitempty"`
}

func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	g := &guard{cmd: exec.Command(self, "guard")}
	g.cmd.Stderr = os.Stderr
	ownGroup(g.cmd)
	if g.in, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a guard for the servers: %w", err)
	}
	return g, nil
}

// tell tells the guard something. Without a guard nothing is told.
func (g *guard) tell(x guarded) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A guard that was killed cannot guard, which is no reason to stop.
	_ = json.NewEncoder(g.in).Encode(x)
}

// end lets the guard do what is left to do, and waits for it.
func (g *guard) end() error { return errors.Join(g.in.Close(), g.cmd.Wait()) }

// guardServers is the life of a guard.
func guardServers(in io.Reader) error {
	left := map[guarded]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var x guarded
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			return fmt.Errorf("read what to guard: %w", err)
		}
		gone := x.Gone
		x.Gone = false
		if gone {
			delete(left, x)
		} else {
			left[x] = true
		}
	}
	var errs []error
	for x := range left {
		if x.Group > 0 {
			endGroup(x.Group)
		}
	}
	for x := range left {
		if x.Dir != "" {
			errs = append(errs, os.RemoveAll(x.Dir))
		}
	}
	return errors.Join(errs...)
}

// endGroup ends a process group: it is asked to, and made to after a while.
func endGroup(group int) {
	there := syscall.Kill(-group, syscall.SIGTERM) == nil
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for began := time.Now(); there && time.Since(began) < endTime; <-t.C {
		there = syscall.Kill(-group, 0) == nil
	}
	_ = syscall.Kill(-group, syscall.SIGKILL) // what has ended cannot be killed
}
