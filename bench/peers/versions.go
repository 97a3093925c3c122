package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// said returns the first line of what a program says, nothing if it cannot be run.
func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first
}

// moduleVersion is the version of a Go module in this binary, empty if it is not known.
func moduleVersion(path string) string {
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return ""
}

// jarVersion is the version in the name of a Java artifact in the servers' directory.
func jarVersion(name, folder, artifact string) func(context.Context, *env) string {
	return func(_ context.Context, e *env) string {
		prefix := filepath.Join(e.servers, folder, artifact) + "-"
		for _, jar := range glob(prefix + "[0-9]*.jar") {
			return name + " " + strings.TrimSuffix(strings.TrimPrefix(jar, prefix), ".jar")
		}
		return name
	}
}

// glob returns the paths of a pattern of this program's own.
func glob(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		panic(err)
	}
	return paths
}
