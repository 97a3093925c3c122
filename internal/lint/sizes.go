package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// What still reads well, in lines and files.
const (
	maxFile     = 500
	maxTestFile = 800
	maxFunc     = 80
	maxTestFunc = 140 // tables of cases, actions of a random walk
	maxFiles    = 30  // of a package, tests aside
)

func checkFileSize(t *Tree, f *File, found report) {
	fileLimit, funcLimit := maxFile, maxFunc
	if f.Test {
		fileLimit, funcLimit = maxTestFile, maxTestFunc
	}
	if f.Lines > fileLimit {
		found(f, f.Syntax.Package, "%d lines, more than %d: split it by topic", f.Lines, fileLimit)
	}
	for _, decl := range f.Syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := t.Fset.Position(fn.End()).Line - t.Fset.Position(fn.Pos()).Line + 1
		if lines > funcLimit {
			found(f, fn.Pos(), "%s has %d lines, more than %d", fn.Name.Name, lines, funcLimit)
		}
	}
}

func checkPackageSize(t *Tree) []Finding {
	counts := map[string]int{}
	for _, f := range t.Files {
		if !f.Test && !f.Generated {
			counts[f.Dir]++
		}
	}
	var all []Finding
	for _, dir := range slices.SortedFunc(maps.Keys(counts), cmp.Compare[string]) {
		if counts[dir] > maxFiles {
			all = append(all, Finding{File: dir, Text: fmt.Sprintf("%d files, more than %d: split the package", counts[dir], maxFiles)})
		}
	}
	return all
}
