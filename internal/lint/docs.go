package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// wellKnown are methods whose meaning an interface of the standard library gives.
var wellKnown = []string{
	"Error", "String", "GoString", "Unwrap", "Is", "As", "Len", "Less", "Swap", "Push", "Pop", "Timeout", "Temporary", "Format", "LogValue",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "MarshalBinary", "UnmarshalBinary", "AppendText", "AppendBinary",
	"ServeHTTP", "RoundTrip", "Flush", "Write", "Read",
}

// checkDocs asks for a doc comment on every exported name of a library.
func checkDocs(t *Tree, f *File, found report) {
	if f.Test || f.inCommand() {
		return
	}
	for _, decl := range f.Syntax.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if !d.Name.IsExported() || d.Recv != nil && (!ast.IsExported(receiverName(d.Recv)) || slices.Contains(wellKnown, d.Name.Name)) {
				continue
			}
			checkComment(f, d.Name, d.Doc, false, found)
		case *ast.GenDecl:
			checkGenDecl(t, f, d, found)
		}
	}
}

// checkComment asks for a comment that begins with the name, perhaps after an article. One that is shared by several
// names has each of them.
func checkComment(f *File, name *ast.Ident, doc *ast.CommentGroup, shared bool, found report) {
	text := strings.TrimSpace(doc.Text())
	if text == "" {
		found(f, name.Pos(), "exported %s has no doc comment", name.Name)
		return
	}
	if shared && mentions(text, name.Name) {
		return
	}
	words := strings.Fields(text)
	if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	first, _, _ := strings.Cut(words[0], "[")
	if strings.TrimRight(first, ",:;.'s") != strings.TrimRight(name.Name, "s") && first != "Deprecated:" {
		found(f, name.Pos(), "the doc comment of %s does not begin with its name", name.Name)
	}
}

func checkGenDecl(t *Tree, f *File, d *ast.GenDecl, found report) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				doc := s.Doc
				if doc == nil {
					doc = d.Doc
				}
				checkComment(f, s.Name, doc, len(d.Specs) > 1, found)
				checkMembers(t, f, s, found)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				// One comment may speak for a group, or stand behind the value.
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					found(f, name.Pos(), "exported %s has no doc comment", name.Name)
				}
			}
		}
	}
}

// checkMembers asks for comments on the methods of interfaces, which are contracts, and on the fields of
// options, whose unit and default a user has to know. A comment may also speak for the lines right below it, if it
// names them.
func checkMembers(t *Tree, f *File, s *ast.TypeSpec, found report) {
	var members []*ast.Field
	switch typ := s.Type.(type) {
	case *ast.InterfaceType:
		members = typ.Methods.List
	case *ast.StructType:
		if strings.HasSuffix(s.Name.Name, "Options") || strings.HasSuffix(s.Name.Name, "Config") {
			members = typ.Fields.List
		}
	}
	shared, end := "", 0
	for _, m := range members {
		begin := line(t, m.Pos())
		if m.Doc != nil {
			shared = m.Doc.Text()
		} else if begin != end+1 {
			shared = ""
		}
		end = line(t, m.End())
		if m.Doc != nil || m.Comment != nil {
			continue
		}
		for _, name := range m.Names {
			_, isMethod := m.Type.(*ast.FuncType)
			if name.IsExported() && !mentions(shared, name.Name) && !(isMethod && slices.Contains(wellKnown, name.Name)) {
				found(f, name.Pos(), "%s.%s has no comment", s.Name.Name, name.Name)
			}
		}
	}
}

// mentions tells whether a text has a name as a word.
func mentions(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }), name)
}

// receiverName returns the name of a method's type.
func receiverName(recv *ast.FieldList) string {
	e := recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// checkPackageDocs asks for a package comment in one file of every package.
func checkPackageDocs(t *Tree) []Finding {
	first := map[string]*File{}
	documented := map[string]bool{}
	var dirs []string
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		if first[f.Dir] == nil {
			first[f.Dir] = f
			dirs = append(dirs, f.Dir)
		}
		if strings.TrimSpace(f.Syntax.Doc.Text()) != "" || f.Generated {
			documented[f.Dir] = true
		}
	}
	var all []Finding
	for _, dir := range dirs {
		if !documented[dir] {
			f := first[dir]
			all = append(all, Finding{File: f.Path, Line: line(t, f.Syntax.Package), Text: "package " + f.Syntax.Name.Name + " has no package comment"})
		}
	}
	return all
}

func line(t *Tree, pos token.Pos) int { return t.Fset.Position(pos).Line }
