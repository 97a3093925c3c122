package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// own is what Holdfast is called among the peers, ceiling what its bench measures beside it.
const (
	own     = "holdfast"
	ceiling = "ceiling"
)

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "client":
		var s spec
		if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
			return fmt.Errorf("read what to do: %w", err)
		}
		return client(ctx, s, os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == "guard":
		return guardServers(os.Stdin)
	}
	var names []string
	for _, p := range known() {
		names = append(names, p.name)
	}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	binary := fs.String("holdfast", "bin/holdfast", "the binary of Holdfast; empty to leave it out")
	servers := fs.String("servers", "bin/peers", "directory that servers/get has filled")
	chosen := fs.String("peers", strings.Join(names, ","), "peers to measure, or what their names begin with (kafka, redis), separated by commas; empty for none")
	only := fs.String("load", "", "measure only workloads whose names contain one of these, separated by semicolons, e.g. \"send, 100 B;latency\"")
	runs := fs.Int("runs", 5, "runs of each, in turns")
	d := fs.Duration("duration", 6*time.Second, "time that is measured in each run, after a third of it for warming up")
	dir := fs.String("dir", ".", "directory in which the servers keep their files for as long as they run")
	out := fs.String("out", "", "write the table to this path with .md, all figures with .json, and a chart with .svg behind it")
	syncs := fs.Bool("syncs", true, "see by strace whether those that sync do so for each message that is sent singly")
	add := fs.Bool("add", false, "add the runs to the figures that are at -out, which were measured on this machine for as long")
	more := fs.String("bench", "", "further flags for Holdfast's bench, separated by spaces")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *d <= 0 || fs.NArg() > 0 {
		return errors.New("runs and duration must be above 0, and there are no arguments but flags")
	}
	b := &bench{binary: *binary, more: strings.Fields(*more), runs: *runs, out: *out, syncs: *syncs,
		table: &table{Time: time.Now().UTC(), Facts: facts(), Duration: d.String()}}
	if *add {
		if err := b.goOn(); err != nil {
			return err
		}
	}
	for _, l := range loads(*d) {
		if slices.ContainsFunc(strings.Split(*only, ";"), func(part string) bool { return strings.Contains(l.name, strings.TrimSpace(part)) }) {
			b.loads = append(b.loads, l)
		}
	}
	if len(b.loads) == 0 {
		return fmt.Errorf("there is no workload with %q in its name", *only)
	}
	var peers []*peer
	var err error
	if *chosen != "" {
		if peers, err = find(*chosen); err != nil {
			return err
		}
	}
	if *binary != "" {
		peers = append([]*peer{ownPeer(*binary)}, peers...)
	}
	b.groups = groups(peers)
	if b.parent, err = filepath.Abs(*dir); err != nil {
		return err
	}
	b.env = &env{}
	if b.env.servers, err = filepath.Abs(*servers); err != nil {
		return err
	}
	if b.env.root, err = findRoot(); err != nil {
		return err
	}
	if b.env.guard, err = startGuard(); err != nil {
		return err
	}
	return errors.Join(b.run(ctx), b.env.guard.end())
}
