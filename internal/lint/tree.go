package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Root is the module path of the core module, and the prefix of all others.
const Root = "github.com/holdfastmq/holdfast"

// File is one parsed Go file.
type File struct {
	// Path is relative to the repository, with slashes.
	Path string
	// Dir is the folder of the package, "." for the root.
	Dir string
	// Test tells whether the name ends in _test.go.
	Test bool
	// Generated tells whether the file says that it is generated.
	Generated bool
	// Lines is the number of lines.
	Lines int
	// Syntax is the parsed file, with comments.
	Syntax *ast.File
	// imports maps the name in the file to the import path; blank and dot imports are under
	// a key of their own.
	imports map[string]string
}

// Module is one go.mod.
type Module struct {
	// Dir is the folder, "." for the core module.
	Dir string
	// Requires are the required module paths; the value tells whether it is direct.
	Requires map[string]bool
}

// Tree is a repository as the rules see it.
type Tree struct {
	// Fset resolves the positions of all files; their file names are File.Path.
	Fset *token.FileSet
	// Files are all Go files outside testdata and hidden folders.
	Files []*File
	// Modules are all modules but those of tools/, whose dependencies reach no product.
	Modules []*Module
	// Decisions is the text of all pages in docs/decisions.
	Decisions string
}

// Load reads a repository. A file that does not parse is an error.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(name) {
				return fs.SkipDir
			}
			return nil
		}
		return t.add(fsys, name)
	})
	if err != nil {
		return nil, fmt.Errorf("load the repository: %w", err)
	}
	return t, nil
}

func skipDir(name string) bool {
	base := path.Base(name)
	hidden := strings.HasPrefix(base, ".") && base != "."
	return hidden || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" || name == "bin" || name == "tools"
}

func (t *Tree) add(fsys fs.FS, name string) error {
	switch {
	case strings.HasSuffix(name, ".go"):
		return t.addFile(fsys, name)
	case path.Base(name) == "go.mod":
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		t.Modules = append(t.Modules, &Module{Dir: path.Dir(name), Requires: requires(string(text))})
	case path.Dir(name) == "docs/decisions" && strings.HasSuffix(name, ".md"):
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		t.Decisions += string(text)
	}
	return nil
}

func (t *Tree) addFile(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.Fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &File{
		Path: name, Dir: path.Dir(name),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     strings.Count(string(text), "\n"),
		Syntax:    syntax,
		imports:   map[string]string{},
	}
	for _, spec := range syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		f.imports[importName(spec, importPath)] = importPath
	}
	t.Files = append(t.Files, f)
	return nil
}

// importName returns the name under which a file sees an import. The last element of the path, major
// version aside, is right for the packages that the rules ask about.
func importName(spec *ast.ImportSpec, importPath string) string {
	if spec.Name != nil {
		if spec.Name.Name == "_" || spec.Name.Name == "." {
			return spec.Name.Name + importPath
		}
		return spec.Name.Name
	}
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

// module returns the folder of the module that a folder belongs to.
func (t *Tree) module(dir string) string {
	best := "."
	for _, m := range t.Modules {
		if within(dir, m.Dir) && len(m.Dir) > len(best) {
			best = m.Dir
		}
	}
	return best
}

// requires reads the requirements of a go.mod file.
func requires(text string) map[string]bool {
	found := map[string]bool{}
	block := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "require ("):
			block = true
			continue
		case line == ")":
			block = false
			continue
		case strings.HasPrefix(line, "require "):
			line = strings.TrimPrefix(line, "require ")
		case !block:
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "//") {
			continue
		}
		found[words[0]] = !strings.Contains(line, "// indirect")
	}
	return found
}

// within tells whether dir is tree or below it. Everything is within ".".
func within(dir, tree string) bool {
	return tree == "." || dir == tree || strings.HasPrefix(dir, tree+"/")
}

// ownDir returns the folder in the repository of an import path, and whether it has one.
func ownDir(importPath string) (string, bool) {
	if importPath == Root {
		return ".", true
	}
	return strings.CutPrefix(importPath, Root+"/")
}
