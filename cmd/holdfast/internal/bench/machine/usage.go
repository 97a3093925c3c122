package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is how many of the units of /proc/PID/stat a second has. Linux fixes it for programs.
const ticks = 100

// Usage is what a process has used so far.
type Usage struct {
	CPU     time.Duration
	RSS     int64 // bytes of memory now
	PeakRSS int64
	// Written are the bytes that it has caused to be written to storage, and Read those read from it.
	Written, Read int64
}

// Used returns what a process has used. It is known on Linux alone.
func Used(pid int) (u Usage, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, fmt.Errorf("see what process %d has used: %w", pid, err)
	}
	// The name in parentheses may have spaces and parentheses in it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("see what process %d has used: %sstat has %d fields", pid, dir, len(fields))
	}
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, fmt.Errorf("see what process %d has used: %w", pid, err)
		}
		u.CPU += time.Duration(n) * (time.Second / ticks)
	}
	kb := func(name string) int64 {
		n, _ := strconv.ParseInt(strings.TrimSuffix(field(dir+"status", name), " kB"), 10, 64)
		return n << 10
	}
	u.RSS, u.PeakRSS = kb("VmRSS"), kb("VmHWM")
	count := func(name string) int64 { n, _ := strconv.ParseInt(field(dir+"io", name), 10, 64); return n }
	u.Written, u.Read = count("write_bytes")-count("cancelled_write_bytes"), count("read_bytes")
	return u, nil
}
