package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
	"strings"
)

// Finding is one breach of a rule.
type Finding struct {
	// File is the path in the repository, Line the line from 1, 0 for the file as a whole.
	File string
	Line int
	// Rule is a name of the list in the package comment.
	Rule string
	// Text says what is wrong and what to do.
	Text string
}

// String formats the finding as compilers do, so that editors find the place.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// firm are the rules without exceptions.
var firm = []string{"layer", "driver", "pure", "module", "decision", "skip"}

// report takes the findings of one rule.
type report func(f *File, pos token.Pos, text string, args ...any)

// fileRules look at one file at a time.
var fileRules = []struct {
	name      string
	generated bool // holds for generated files too
	check     func(t *Tree, f *File, found report)
}{
	{"layer", true, checkLayer},
	{"driver", true, checkDriver},
	{"pure", true, checkPure},
	{"sleep", false, checkSleep},
	{"skip", false, checkSkip},
	{"print", false, checkPrint},
	{"context", false, checkContext},
	{"size", false, checkFileSize},
	{"doc", false, checkDocs},
}

// treeRules look at the repository as a whole.
var treeRules = []struct {
	name  string
	check func(t *Tree) []Finding
}{
	{"module", checkModules},
	{"decision", checkDecisions},
	{"goleak", checkGoleak},
	{"size", checkPackageSize},
	{"doc", checkPackageDocs},
}

// Check reads a repository and returns all findings, sorted by file and line.
func Check(fsys fs.FS) ([]Finding, error) {
	t, err := Load(fsys)
	if err != nil {
		return nil, err
	}
	return t.Check(), nil
}

// Check returns all findings, sorted by file and line.
func (t *Tree) Check() []Finding {
	var all []Finding
	for _, f := range t.Files {
		for _, rule := range fileRules {
			if f.Generated && !rule.generated {
				continue
			}
			rule.check(t, f, func(f *File, pos token.Pos, text string, args ...any) {
				all = append(all, Finding{f.Path, t.Fset.Position(pos).Line, rule.name, fmt.Sprintf(text, args...)})
			})
		}
	}
	for _, rule := range treeRules {
		for _, found := range rule.check(t) {
			found.Rule = rule.name
			all = append(all, found)
		}
	}
	all = t.allow(all)
	slices.SortStableFunc(all, func(a, b Finding) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return all
}

// exception is one allow comment.
type exception struct {
	file string
	line int
	rule string
	used bool
}

const allowPrefix = "//holdfast:allow"

// allow takes out what an allow comment excepts, and adds findings about such comments.
func (t *Tree) allow(all []Finding) []Finding {
	exceptions, faults := t.exceptions()
	kept := slices.DeleteFunc(all, func(f Finding) bool {
		for _, e := range exceptions {
			if e.file == f.File && e.rule == f.Rule && (e.line == f.Line || e.line == f.Line-1) {
				e.used = true
				return true
			}
		}
		return false
	})
	for _, e := range exceptions {
		if !e.used {
			faults = append(faults, Finding{e.file, e.line, "allow", "nothing here needs an exception from " + e.rule + ": remove the comment"})
		}
	}
	return append(kept, faults...)
}

func (t *Tree) exceptions() (found []*exception, faults []Finding) {
	for _, f := range t.Files {
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				rest, ok := strings.CutPrefix(c.Text, allowPrefix)
				if !ok {
					continue
				}
				line := t.Fset.Position(c.Pos()).Line
				rule, reason, ok := strings.Cut(strings.TrimSpace(rest), ":")
				switch {
				case !ok || strings.TrimSpace(reason) == "":
					faults = append(faults, Finding{f.Path, line, "allow", "an exception needs its reason: " + allowPrefix + " RULE: REASON"})
				case slices.Contains(firm, rule):
					faults = append(faults, Finding{f.Path, line, "allow", "the rule " + rule + " has no exceptions"})
				default:
					found = append(found, &exception{file: f.Path, line: line, rule: rule})
				}
			}
		}
	}
	return found, faults
}

// pkgDot returns the package path and name of an expression like fmt.Println, or "" for anything else.
func (f *File) pkgDot(e ast.Expr) (importPath, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return f.imports[x.Name], sel.Sel.Name
}

// inCommand tells whether the file belongs to a program rather than to a library.
func (f *File) inCommand() bool { return f.Syntax.Name.Name == "main" || within(f.Dir, "cmd") }
