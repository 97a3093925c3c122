package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// impure are the standard packages, with all below them, that a pure package does not import. A rule that reads a
// clock, waits, or asks anything outside of its input cannot be replayed.
var impure = []string{
	"context", "crypto/rand", "database", "expvar", "io/fs", "io/ioutil", "log", "net", "os", "path/filepath",
	"plugin", "runtime", "sync", "syscall", "testing", "unique", "weak",
}

// clock are the names of package time that read a clock or wait; its types and constants are welcome.
var clock = []string{
	"After", "AfterFunc", "Local", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

// seeded are the names of math/rand and math/rand/v2 that draw from no hidden source.
var seeded = []string{
	"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf",
}

// checkPure holds the files of pure rows, tests aside, to having no inputs but their arguments.
func checkPure(_ *Tree, f *File, found report) {
	row, _, ok := layerOf(f.Dir)
	if !ok || !row.Pure || f.Test {
		return
	}
	for _, spec := range f.Syntax.Imports {
		importPath := strings.Trim(spec.Path.Value, "`\"")
		if dir, own := ownDir(importPath); own {
			if target, _, known := layerOf(dir); !known || !target.Pure {
				found(f, spec.Pos(), "a pure package imports %s, which is not pure", importPath)
			}
			continue
		}
		if slices.ContainsFunc(impure, func(p string) bool { return within(importPath, p) }) {
			found(f, spec.Pos(), "a pure package imports %s", importPath)
		}
		if spec.Name != nil && spec.Name.Name == "." {
			found(f, spec.Pos(), "a pure package dot-imports %s, so that its uses cannot be checked", importPath)
		}
	}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if text := impurity(f, n); text != "" {
			found(f, n.Pos(), "a pure package %s", text)
		}
		return true
	})
}

// impurity says what is impure about a node, "" if nothing is.
func impurity(f *File, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "uses channels"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "uses channels"
		}
	case *ast.SelectorExpr:
		importPath, name := f.pkgDot(n)
		switch {
		case importPath == "time" && slices.Contains(clock, name):
			return "reads the clock by time." + name + ": take the time as an argument"
		case within(importPath, "math/rand") && !slices.Contains(seeded, name):
			return "draws by rand." + name + " from a hidden source: take a seeded one as an argument"
		}
	}
	return ""
}
