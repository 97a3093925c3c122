package lint

import (
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// Layer is a row of the layer table: a package with all below it that have no row of their own.
type Layer struct {
	// Dir is the folder in the repository. "." stands for the root package alone.
	Dir string
	// Pure rows are held to the rule pure. They import pure rows only.
	Pure bool
	// Not are rows further down that this one may not import all the same, tests aside.
	Not []string
	// What says in a few words what the package is for.
	What string
}

// Layers is the layer table, top first. A package may import what is in a later group, and what is in its own row.
// Rows of one group do not see each other.
var Layers = [][]Layer{
	{
		{Dir: "cmd/holdfast", What: "the binary: wires everything, maps URL schemes to drivers"},
		{Dir: "bench", What: "comparisons with other systems"},
		{Dir: "examples", What: "runnable programs for the documentation"},
		{Dir: "servers", What: "servers that tests start; no part of the product"},
	},
	{
		{Dir: "console", What: "web console"},
		{Dir: "sqs", What: "SQS-compatible front door"},
		{Dir: "journal/journaltest/embedded", What: "suites for journals on local disk, under a broker too; for tests of drivers"},
	},
	{{Dir: "rpc", What: "the protocol's server: admin calls and data frames"}},
	{{Dir: "client", Not: []string{"broker", "persistent", "journal"}, What: "Go client of a broker"}},
	{{Dir: "broker", Not: []string{"rpc/transport", "rpc/adminpb", "rpc/status", "rpc/wire"}, What: "queue registry, owners, credit, clocks and goroutines"}},
	{
		{Dir: "rpc/transport", Not: []string{"persistent", "journal"}, What: "a connection's reading and writing, for both ends"},
		{Dir: "rpc/adminpb", Not: []string{"persistent", "journal"}, What: "the admin calls: generated code, and what it means in Go"},
	},
	{{Dir: "broker/placement", Pure: true, What: "which of several brokers is to have which queue"}},
	{{Dir: "rpc/status", Not: []string{"persistent", "journal"}, What: "errors as they travel, for both ends"}},
	{{Dir: "linktest", Not: []string{"persistent", "journal"}, What: "random runs over a Link with faults, judged; for tests of links and brokers"}},
	{{Dir: "rpc/wire", Pure: true, What: "the bytes of the data protocol"}},
	{{Dir: ".", Not: []string{"persistent", "journal"}, What: "what a user of queues sees, over the small interface Link"}},
	{{Dir: "queue", Pure: true, What: "a queue's rules: commands in, events and effects out"}},
	{{Dir: "delivery/durable", What: "a durable producer's journal, as a persistent actor"}},
	{{Dir: "persistent", What: "the persistent actor: mailbox, recover, persist, snapshot"}},
	{{Dir: "delivery", What: "producer and consumer controllers: shells and links"}},
	{
		{Dir: "delivery/producer", Pure: true, What: "the sending side's rules"},
		{Dir: "delivery/consumer", Pure: true, What: "the receiving side's rules"},
	},
	{{Dir: "delivery/window", Pure: true, What: "the dedup window"}},
	{{Dir: "message", Pure: true, What: "messages, attributes, frames, limits"}},
	{{Dir: "journal", What: "the storage contract, memory journal, conformance suite; drivers are modules below it"}},
	{{Dir: "internal", What: "helpers without a place in the design"}},
}

// layerOf returns the row of a folder and the number of its group.
func layerOf(dir string) (row Layer, group int, ok bool) {
	for g, rows := range Layers {
		for _, r := range rows {
			if r.Dir == "." && dir != "." || !within(dir, r.Dir) {
				continue
			}
			if !ok || len(r.Dir) > len(row.Dir) {
				row, group, ok = r, g, true
			}
		}
	}
	return row, group, ok
}

// LayerTable formats the table for the documentation.
func LayerTable() string {
	var b strings.Builder
	b.WriteString("| Package | Kind | For | Not, though below |\n|---|---|---|---|\n")
	for _, rows := range Layers {
		for _, r := range rows {
			kind := ""
			if r.Pure {
				kind = "pure"
			}
			name := r.Dir
			if name == "." {
				name = "holdfast (root)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, kind, r.What, strings.Join(r.Not, ", "))
		}
	}
	return b.String()
}

// eachOwnImport calls visit for each import of a package of this repository.
func (f *File) eachOwnImport(visit func(pos token.Pos, dir string)) {
	for _, spec := range f.Syntax.Imports {
		if dir, ok := ownDir(strings.Trim(spec.Path.Value, "`\"")); ok {
			visit(spec.Pos(), dir)
		}
	}
}

func checkLayer(t *Tree, f *File, found report) {
	row, group, ok := layerOf(f.Dir)
	if !ok {
		found(f, f.Syntax.Package, "folder %s is in no row of the layer table: add one to internal/lint/layers.go and docs/contributing.md", f.Dir)
		return
	}
	f.eachOwnImport(func(pos token.Pos, dir string) {
		if f.Test && testMayImport(t, f, dir) {
			return
		}
		target, targetGroup, ok := layerOf(dir)
		switch {
		case !ok:
			found(f, pos, "imports %s, which is in no row of the layer table", dir)
		case target.Dir == row.Dir:
		case targetGroup <= group:
			found(f, pos, "%s imports %s, which is not below it: imports point down the layer table", row.Dir, dir)
		case !f.Test && slices.Contains(row.Not, target.Dir):
			found(f, pos, "%s does not know %s", row.Dir, dir)
		}
	})
}

// testMayImport tells what tests may do beyond the layer table: those of a driver run the layers above over their
// journal, those of a package use its neighbours below the same top folder, and the root package has a suite of its own beside it.
func testMayImport(t *Tree, f *File, dir string) bool {
	if t.module(f.Dir) != "." {
		return true
	}
	if f.Dir == "." && dir == "linktest" { // which tries the package from outside
		return true
	}
	mine, _, _ := strings.Cut(f.Dir, "/")
	theirs, _, _ := strings.Cut(dir, "/")
	return mine == theirs
}

// driverOf returns the journal driver module that a folder belongs to.
func driverOf(t *Tree, dir string) (string, bool) {
	m := t.module(dir)
	return m, strings.HasPrefix(m, "journal/")
}

func checkDriver(t *Tree, f *File, found report) {
	example := within(f.Dir, "examples") && t.module(f.Dir) != "." // one that the core module does not carry
	if within(f.Dir, "cmd/holdfast") || within(f.Dir, "bench") || example {
		return
	}
	f.eachOwnImport(func(pos token.Pos, dir string) {
		if driver, ok := driverOf(t, dir); ok && t.module(f.Dir) != driver {
			found(f, pos, "imports the journal driver %s: only cmd/holdfast, bench and examples with a module of their own do", driver)
		}
	})
}
