package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// bench measures groups of peers, each of which shares a server, in turns.
type bench struct {
	env    *env
	binary string   // of Holdfast
	more   []string // flags for its bench
	parent string   // directory for the servers' files
	out    string
	runs   int
	before int // runs that are in the table already
	syncs  bool
	loads  []load
	groups [][]*peer

	table *table
	plan  *plan
}

// groups puts peers that share a server together.
func groups(peers []*peer) (all [][]*peer) {
	at := map[string]int{}
	for _, p := range peers {
		i, ok := at[p.shares]
		if !ok || p.shares == "" {
			i = len(all)
			all = append(all, nil)
		}
		at[p.shares] = i
		all[i] = append(all[i], p)
	}
	return all
}

// goOn takes up the figures that are at out, to add runs to them.
func (b *bench) goOn() error {
	if b.out == "" {
		return errors.New("-add needs -out")
	}
	t, err := readTable(b.out)
	if err != nil {
		return err
	}
	if t.Facts != b.table.Facts || t.Duration != b.table.Duration {
		return fmt.Errorf("what is at %s was measured on %s for %s each: runs on %s for %s cannot be added", b.out, t.Facts, t.Duration, b.table.Facts, b.table.Duration)
	}
	b.table, b.before = t, t.runs()
	return nil
}

// run measures everything, and writes what there is after each group, so that little is lost when it is interrupted. What fails is left out, and told at the end.
func (b *bench) run(ctx context.Context) error {
	for _, p := range slices.Concat(b.groups...) {
		version := ""
		if p.version != nil {
			version = p.version(ctx, b.env)
		}
		b.table.describe(p, version)
	}
	b.plan = newPlan(b.groups, b.loads, b.runs, b.syncs)
	fmt.Fprintln(os.Stderr, b.plan.announce())
	var errs []error
	for n := b.before; n < b.before+b.runs; n++ {
		for _, g := range turned(b.groups, n) {
			if ctx.Err() != nil {
				break
			}
			if err := b.measure(ctx, g, n); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", g[0].name, err)
				errs = append(errs, err)
			}
			if b.out != "" {
				if err := b.table.write(b.out); err != nil {
					return err
				}
			}
		}
	}
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("the table has only what was measured until then: %w", context.Cause(ctx)))
	}
	return errors.Join(append(errs, b.table.write(b.out))...)
}

// measure is one turn of a group.
func (b *bench) measure(ctx context.Context, g []*peer, run int) error {
	var failed []error
	told := map[*row]bool{} // of a server that does not start, all that is missing has failed
	tell := func(p *peer, l load, f figure, err error) {
		var text string
		if err != nil {
			failed = append(failed, err)
			b.table.fail(p, l, err)
			text = "failed: " + err.Error()
		} else {
			b.table.add(l, p, f)
			text = f.text(l)
		}
		told[b.table.row(l, p)] = true
		fmt.Fprintf(os.Stderr, "%s  run %d  %-28s %-50s %s\n", b.plan.done(), run+1, p.name, l.name, text)
	}
	var synced func(*peer, int, error)
	if b.syncs && g[0].synced && b.table.about(g[0].name).Syncs == nil {
		synced = func(p *peer, n int, err error) {
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: whether it syncs was not seen: %v\n", p.name, err)
				return
			}
			fmt.Fprintf(os.Stderr, "%s: %d syncs for %d messages that were sent singly\n", p.name, n, loneSends)
			for _, q := range g {
				if q == p || !q.does(load{kind: "send"}) {
					b.table.synced(q, n)
				}
			}
		}
	}
	var err error
	if g[0].name == own {
		err = b.measureOwn(ctx, g[0], tell, synced)
	} else {
		err = measureGroup(ctx, b.env, g, b.loads, b.parent, tell, synced)
	}
	if err != nil && ctx.Err() == nil {
		for _, p := range g {
			for _, l := range b.loads {
				if p.does(l) && !told[b.table.row(l, p)] {
					b.table.fail(p, l, err)
				}
			}
		}
	}
	return errors.Join(append(failed, err)...)
}

// turned begins with another one in each run, so that none is always the first.
func turned[T any](all []T, n int) []T {
	if len(all) == 0 {
		return nil
	}
	n %= len(all)
	return slices.Concat(all[n:], all[:n])
}
