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
	if len(args) == 2 && args[0] == "client" {
		var s spec
		if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
			return fmt.Errorf("read what to do: %w", err)
		}
		return client(ctx, s, os.Stdin, os.Stdout)
	}
	var names []string
	for _, p := range all() {
		names = append(names, p.name)
	}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	binary := fs.String("holdfast", "bin/holdfast", "the binary of Holdfast; empty to leave it out")
	servers := fs.String("servers", "bin/peers", "directory that servers/get has filled")
	chosen := fs.String("peers", strings.Join(names, ","), "peers to measure, separated by commas; empty for none")
	only := fs.String("load", "", "measure only workloads whose names contain this")
	runs := fs.Int("runs", 5, "runs of each, in turns")
	d := fs.Duration("duration", 6*time.Second, "time that is measured in each run, after a third of it for warming up")
	dir := fs.String("dir", ".", "directory in which the servers keep their files for as long as they run")
	out := fs.String("out", "", "write the table to this path with .md, all figures with .json, and a chart with .svg behind it")
	more := fs.String("bench", "", "further flags for Holdfast's bench, separated by spaces")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *d <= 0 || fs.NArg() > 0 {
		return errors.New("runs and duration must be above 0, and there are no arguments but flags")
	}
	var peers []*peer
	if *chosen != "" {
		var err error
		if peers, err = find(*chosen); err != nil {
			return err
		}
	}
	e := &env{}
	var err error
	if e.servers, err = filepath.Abs(*servers); err != nil {
		return err
	}
	parent, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	t := &table{Time: time.Now().UTC(), Facts: facts(ctx, *binary)}
	var chosenLoads []load
	for _, l := range loads(*d) {
		if strings.Contains(l.name, *only) {
			chosenLoads = append(chosenLoads, l)
		}
	}
	for i := range *runs {
		if err := turn(ctx, t, e, chosenLoads, turned(peers, i), *binary, parent, i, strings.Fields(*more)); err != nil {
			return err
		}
	}
	return t.write(*out)
}

// turn is one run of everything.
func turn(ctx context.Context, t *table, e *env, all []load, peers []*peer, binary, parent string, n int, more []string) error {
	for _, l := range all {
		if binary == "" {
			break
		}
		f, raw, err := measureHoldfast(ctx, binary, l, parent, more)
		if err != nil {
			return err
		}
		t.add(l, own, "its default: a sync before each answer", true, f)
		t.add(l, ceiling, "a bare framed connection into one synced log; raw append and fdatasync of 4 KiB", true, raw)
		t.tell(l, own, n)
	}
	for _, p := range peers {
		var its []load
		for _, l := range all {
			if p.only == "" || p.only == l.kind {
				its = append(its, l)
			}
		}
		if len(its) == 0 {
			continue
		}
		err := measurePeer(ctx, e, p, its, parent, func(l load, f figure) {
			t.add(l, p.name, p.about, p.synced, f)
			t.tell(l, p.name, n)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// turned begins with another peer in each run, so that none is always the first.
func turned(peers []*peer, n int) []*peer {
	if len(peers) == 0 {
		return nil
	}
	n %= len(peers)
	return slices.Concat(peers[n:], peers[:n])
}
