// Package machine tells on what a measurement was made, and what a process has used.
package machine

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Facts are the machine and the versions of a measurement. What is not known is empty.
type Facts struct {
	Holdfast   string `json:"holdfast"`
	Revision   string `json:"revision,omitempty"`
	Go         string `json:"go"`
	OS         string `json:"os"`
	Kernel     string `json:"kernel,omitempty"`
	CPU        string `json:"cpu,omitempty"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Memory     int64  `json:"memory_bytes,omitempty"`
	FileSystem string `json:"file_system,omitempty"`
	// Load is the load average of the last minute, when the measurement began.
	Load float64 `json:"load"`
}

// Find collects the facts, for files in a directory.
func Find(version, dir string) Facts {
	f := Facts{
		Holdfast: version, Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Kernel: firstLine("/proc/sys/kernel/osrelease"),
		CPU:    field("/proc/cpuinfo", "model name"),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				f.Revision = s.Value[:min(12, len(s.Value))] + f.Revision
			case s.Key == "vcs.modified" && s.Value == "true":
				f.Revision += "+changes"
			}
		}
	}
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		f.Memory = kb << 10
	}
	f.Load, _ = strconv.ParseFloat(strings.SplitN(firstLine("/proc/loadavg"), " ", 2)[0], 64)
	f.FileSystem = fileSystem(dir, "/proc/self/mountinfo")
	return f
}

// String writes the facts in one line.
func (f Facts) String() string {
	version := f.Holdfast
	if f.Revision != "" {
		version += " (" + f.Revision + ")"
	}
	return fmt.Sprintf("holdfast %s, %s, %s %s, %d cores (%s), GOMAXPROCS %d, %d MiB memory, %s, load %.2f",
		version, f.Go, f.OS, f.Kernel, f.Cores, cmp.Or(f.CPU, "unknown model"), f.GOMAXPROCS, f.Memory>>20, cmp.Or(f.FileSystem, "unknown file system"), f.Load)
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// field returns the first value that a file has for a name, as "name: value".
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// fileSystem returns type and device of the file system that a path is on, from the table of mounts.
func fileSystem(path, mounts string) (found string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	b, err := os.ReadFile(mounts)
	if err != nil {
		return ""
	}
	longest := -1
	for line := range strings.Lines(string(b)) {
		mount, source, ok := strings.Cut(line, " - ")
		at, from := strings.Fields(mount), strings.Fields(source)
		if !ok || len(at) < 5 || len(from) < 2 {
			continue
		}
		on := at[4]
		// Later lines are mounted over earlier ones.
		if (on == "/" || path == on || strings.HasPrefix(path, on+"/")) && len(on) >= longest {
			longest, found = len(on), from[0]+" on "+from[1]
		}
	}
	return found
}
