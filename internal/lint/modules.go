package lint

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// databases are parts of module paths that name a storage engine, a database's client, or a peer. Whoever imports
// the core module, or tests it, carries none of them.
var databases = []string{
	"/pebble", "/pgx", "/pq", "/nats", "nats-io/", "/gocql", "cassandra-gocql", "mongo", "hbase", "sqlite", "/redis", "/kafka", "/sarama", "franz-go",
	"leveldb", "rocksdb", "badger", "/bbolt", "/etcd", "k8s.io/", "testcontainers", "docker/", "aws-sdk", "cloud.google.com",
}

// checkModules holds the core module to requiring no driver and no other module of this repository, indirectly
// or for tests included.
func checkModules(t *Tree) []Finding {
	var all []Finding
	for _, m := range t.Modules {
		if m.Dir != "." {
			continue
		}
		for _, required := range slices.Sorted(maps.Keys(m.Requires)) {
			if strings.HasPrefix(required, Root+"/") {
				all = append(all, Finding{File: "go.mod", Text: "the core module requires " + required})
				continue
			}
			for _, name := range databases {
				if strings.Contains(required, name) {
					all = append(all, Finding{File: "go.mod", Text: "the core module requires " + required + ": a driver belongs into a module of its own"})
					break
				}
			}
		}
	}
	return all
}

// checkDecisions asks that each direct dependency is named in a decision page.
func checkDecisions(t *Tree) []Finding {
	var all []Finding
	for _, m := range t.Modules {
		for _, required := range slices.Sorted(maps.Keys(m.Requires)) {
			if !m.Requires[required] || within(required, Root) || strings.Contains(t.Decisions, "`"+required+"`") {
				continue
			}
			all = append(all, Finding{File: path.Join(m.Dir, "go.mod"), Text: "no page in docs/decisions names `" + required + "` and says why it is used"})
		}
	}
	return all
}

// checkGoleak asks packages that start goroutines for a test main that finds those which do not end.
func checkGoleak(t *Tree) []Finding {
	checked := map[string]bool{}
	starts := map[string]Finding{}
	for _, f := range t.Files {
		if f.Generated {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if f.Test {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					importPath, name := f.pkgDot(sel)
					if importPath == "go.uber.org/goleak" && (name == "VerifyTestMain" || name == "Find") {
						checked[f.Dir] = true
					}
				}
				return true
			}
			if _, seen := starts[f.Dir]; !seen && startsGoroutine(n) {
				starts[f.Dir] = Finding{File: f.Path, Line: line(t, n.Pos()), Text: "the package starts goroutines and has no TestMain with goleak.VerifyTestMain"}
			}
			return true
		})
	}
	var all []Finding
	for _, dir := range slices.Sorted(maps.Keys(starts)) {
		if !checked[dir] {
			all = append(all, starts[dir])
		}
	}
	return all
}

// startsGoroutine tells whether a node is a go statement, or a call like wg.Go(func() {…}).
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Go" || len(n.Args) != 1 {
			return false
		}
		_, ok = n.Args[0].(*ast.FuncLit)
		return ok
	}
	return false
}
