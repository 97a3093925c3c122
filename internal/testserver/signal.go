package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Nodes returns the names of the server's processes that run, one for each file NODE.pid of
// its folder, ascending.
func (s *Server) Nodes() []string {
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.pid")) // the pattern is well-formed
	var nodes []string
	for _, f := range files {
		node := strings.TrimSuffix(filepath.Base(f), ".pid")
		if _, err := s.PID(node); s.Own() && err == nil {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// PID returns the main process of a node, which runs.
func (s *Server) PID(node string) (int, error) {
	if err := s.own("find the processes of"); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(filepath.Join(s.dir, node+".pid"))
	if err != nil {
		return 0, fmt.Errorf("test server %s: %w", s.name, err)
	}
	var pid int
	var began string
	if _, err := fmt.Sscan(string(data), &pid, &began); err != nil {
		return 0, fmt.Errorf("test server %s: %s.pid: %w", s.name, node, err)
	}
	if p, ok := process(pid); !ok || p.began != began {
		return 0, fmt.Errorf("test server %s: node %s does not run", s.name, node)
	}
	return pid, nil
}

// Processes returns a node's main process and all its descendants that run now.
func (s *Server) Processes(node string) ([]int, error) {
	pid, err := s.PID(node)
	if err != nil {
		return nil, err
	}
	return tree(pid)
}

// Pause stops every process of the nodes (of all nodes if none is named) without their notice
// (SIGSTOP), as if the machine stood still: connections stay open and nothing answers.
func (s *Server) Pause(nodes ...string) error {
	return s.each("pause", nodes, func(pid int) error { return stopTree(pid) })
}

// Resume lets paused nodes go on.
func (s *Server) Resume(nodes ...string) error {
	return s.each("resume", nodes, func(pid int) error {
		pids, err := tree(pid)
		for _, p := range slices.Backward(pids) {
			err = errors.Join(err, signal(p, syscall.SIGCONT))
		}
		return err
	})
}

// Kill ends every process of the nodes (of all nodes if none is named) by SIGKILL, and returns
// when they are gone. [Server.Restart] brings them back.
func (s *Server) Kill(nodes ...string) error {
	return s.each("kill", nodes, func(pid int) error {
		// Stopped first, so that none has the time to notice that another is gone.
		err := stopTree(pid)
		pids, listErr := tree(pid)
		err = errors.Join(err, listErr)
		for _, p := range pids {
			err = errors.Join(err, signal(p, syscall.SIGKILL))
		}
		return errors.Join(err, waitGone(pids))
	})
}

func (s *Server) each(what string, nodes []string, f func(pid int) error) error {
	if err := s.own(what); err != nil {
		return err
	}
	if len(nodes) == 0 {
		nodes = s.Nodes()
	}
	for _, node := range nodes {
		pid, err := s.PID(node)
		if err == nil {
			err = f(pid)
		}
		if err != nil {
			return fmt.Errorf("test server %s: %s node %s: %w", s.name, what, node, err)
		}
	}
	return nil
}

// stopTree stops a process and its descendants, also those that they start meanwhile.
func stopTree(pid int) error {
	stopped := map[int]bool{}
	for {
		pids, err := tree(pid)
		if err != nil {
			return err
		}
		grown := false
		for _, p := range pids {
			if !stopped[p] {
				stopped[p], grown = true, true
				if err := signal(p, syscall.SIGSTOP); err != nil {
					return err
				}
			}
		}
		if !grown {
			return nil
		}
	}
}

// signal sends a signal; that the process has ended is no error.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%v to process %d: %w", sig, pid, err)
	}
	return nil
}

// goneTimeout bounds the wait for killed processes: writing out memory may take the system a while.
const goneTimeout = 20 * time.Second

func waitGone(pids []int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(goneTimeout); ; <-tick.C {
		left := slices.DeleteFunc(slices.Clone(pids), func(p int) bool {
			_, runs := process(p)
			return !runs
		})
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v are still there %v after SIGKILL", left, goneTimeout)
		}
	}
}

// proc is what /proc/PID/stat tells of a process.
type proc struct {
	pid, parent int
	began       string // ticks since boot
}

// process reads about a process; one that has ended and was not waited for yet is none. A process whose first thread has ended while others are
// still ending looks the same but for their number, and still holds its ports.
func process(pid int) (proc, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, false
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 || fields[0] == "X" || fields[0] == "Z" && (fields[17] == "0" || fields[17] == "1") {
		return proc{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return proc{pid: pid, parent: parent, began: fields[19]}, err == nil
}

// tree returns a process, first, and its descendants, whatever sessions they are in.
func tree(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := process(pid); ok {
				children[p.parent] = append(children[p.parent], pid)
			}
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}
