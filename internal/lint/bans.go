package lint

import (
	"go/ast"
	"go/build/constraint"
	"slices"
	"strings"
)

// checkSleep bans time.Sleep outside of the virtual time of testing/synctest: a test that sleeps is slow
// and still fails now and then; a library that sleeps does not return when its context ends (G9).
func checkSleep(_ *Tree, f *File, found report) {
	var virtual []ast.Node
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if importPath, name := f.pkgDot(call.Fun); importPath == "testing/synctest" && (name == "Test" || name == "Run") {
			virtual = append(virtual, call)
		}
		return true
	})
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		importPath, name := f.pkgDot(sel)
		if importPath != "time" || name != "Sleep" {
			return true
		}
		inside := func(v ast.Node) bool { return v.Pos() <= sel.Pos() && sel.End() <= v.End() }
		if !slices.ContainsFunc(virtual, inside) {
			found(f, sel.Pos(), "time.Sleep: wait for the event with a context, or test in virtual time (testing/synctest)")
		}
		return true
	})
}

// testers are the names that values of testing.T and its like have.
var testers = []string{"t", "tb", "b", "f", "T", "TB"}

// platforms are the build tags under which a test still runs somewhere in CI or on a user's machine.
var platforms = []string{"linux", "darwin", "windows", "unix", "amd64", "arm64", "race", "cgo"}

// checkSkip bans tests that do not run: a skipped test proves nothing and looks as if it did. What takes long runs
// at a reduced count, and in full under HOLDFAST_SOAK=1.
func checkSkip(_ *Tree, f *File, found report) {
	draws := f.rapidFuncs()
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if importPath, name := f.pkgDot(sel); importPath == "testing" && name == "Short" {
			found(f, sel.Pos(), "testing.Short: reduce the count, and run it in full under HOLDFAST_SOAK=1")
		}
		if slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && isTester(sel.X) && f.testing() && !draws.has(sel.X) {
			found(f, sel.Pos(), "a test is skipped: make it run, or remove it")
		}
		return true
	})
	if !f.Test {
		return
	}
	for _, group := range f.Syntax.Comments {
		if group.Pos() > f.Syntax.Package {
			break
		}
		for _, c := range group.List {
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				continue
			}
			for _, tag := range tags(expr) {
				if !slices.Contains(platforms, tag) {
					found(f, c.Pos(), "the build tag %s hides a test from the test command", tag)
				}
			}
		}
	}
}

// rapidFuncs are the functions of a file with a parameter of type *rapid.T. Its Skip is another thing: an action of a random
// walk says that it does not apply now, and rapid draws the next one (and fails if none ever does).
type rapidFuncs []rapidFunc

type rapidFunc struct {
	body  *ast.BlockStmt
	param string
}

func (f *File) rapidFuncs() (all rapidFuncs) {
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		var typ *ast.FuncType
		var body *ast.BlockStmt
		switch n := n.(type) {
		case *ast.FuncLit:
			typ, body = n.Type, n.Body
		case *ast.FuncDecl:
			typ, body = n.Type, n.Body
		}
		if body == nil {
			return true
		}
		for _, p := range typ.Params.List {
			star, ok := p.Type.(*ast.StarExpr)
			if !ok || len(p.Names) != 1 {
				continue
			}
			if importPath, name := f.pkgDot(star.X); importPath == "pgregory.net/rapid" && name == "T" {
				all = append(all, rapidFunc{body, p.Names[0].Name})
			}
		}
		return true
	})
	return all
}

// has tells whether an expression is the parameter of an enclosing one of the functions.
func (all rapidFuncs) has(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && slices.ContainsFunc(all, func(r rapidFunc) bool {
		return r.param == id.Name && r.body.Pos() <= id.Pos() && id.End() <= r.body.End()
	})
}

// tags returns the tags that a build constraint names.
func tags(e constraint.Expr) []string {
	switch e := e.(type) {
	case *constraint.TagExpr:
		return []string{e.Tag}
	case *constraint.NotExpr:
		return tags(e.X)
	case *constraint.AndExpr:
		return append(tags(e.X), tags(e.Y)...)
	case *constraint.OrExpr:
		return append(tags(e.X), tags(e.Y)...)
	}
	return nil
}

// testing tells whether the file deals with tests at all.
func (f *File) testing() bool {
	if f.Test {
		return true
	}
	for _, importPath := range f.imports {
		if importPath == "testing" || importPath == "pgregory.net/rapid" {
			return true
		}
	}
	return false
}

// isTester tells whether an expression looks like a *testing.T: t, tb, s.t, s.T().
func isTester(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains(testers, e.Name)
	case *ast.SelectorExpr:
		return slices.Contains(testers, e.Sel.Name)
	case *ast.CallExpr:
		return isTester(e.Fun)
	}
	return false
}

// checkPrint bans output and exits in libraries, whose caller decides about both.
func checkPrint(_ *Tree, f *File, found report) {
	for _, spec := range f.Syntax.Imports {
		if spec.Path.Value == `"log"` {
			found(f, spec.Pos(), "imports log: use log/slog")
		}
	}
	if f.Test || f.inCommand() {
		return
	}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			importPath, name := f.pkgDot(n)
			switch {
			case importPath == "fmt" && strings.HasPrefix(name, "Print"):
				found(f, n.Pos(), "fmt.%s: a library prints nothing", name)
			case importPath == "os" && (name == "Stdout" || name == "Stderr"):
				found(f, n.Pos(), "os.%s: a library takes an io.Writer or logs by slog", name)
			case importPath == "os" && name == "Exit":
				found(f, n.Pos(), "os.Exit: a library returns an error")
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				found(f, n.Pos(), "%s: a library prints nothing", id.Name)
			}
		}
		return true
	})
}

// checkContext bans contexts in structs: whoever waits passes its own (G9). A type that embeds one and has a Value
// method of its own is a context itself.
func checkContext(_ *Tree, f *File, found report) {
	contexts := map[string]bool{}
	for _, decl := range f.Syntax.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "Value" {
			contexts[receiverName(fn.Recv)] = true
		}
	}
	own := map[*ast.StructType]bool{}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec: // visited before its struct
			if s, ok := n.Type.(*ast.StructType); ok {
				own[s] = contexts[n.Name.Name]
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				importPath, name := f.pkgDot(field.Type)
				if importPath == "context" && name == "Context" && (len(field.Names) > 0 || !own[n]) {
					found(f, field.Pos(), "a context is kept in a struct: pass it to each call")
				}
			}
		}
		return true
	})
}
