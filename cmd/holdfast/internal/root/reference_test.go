package root_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/root"
)

var rewrite = flag.Bool("rewrite", false, "write the reference in the documentation anew")

const (
	page  = "../../../../docs/command-line.md"
	begin = "<!-- reference: written by the tests of cmd/holdfast/internal/root, with -args -rewrite -->\n"
	end   = "<!-- end of reference -->\n"
)

// reference describes all commands with their flags.
func reference(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	if cmd.HasParent() {
		fmt.Fprintf(b, "\n### `%s`\n\n%s.\n", cmd.UseLine(), cmd.Short)
		flags(b, cmd.LocalFlags())
	} else {
		b.WriteString("\nAll commands:\n")
		flags(b, cmd.PersistentFlags())
	}
	for _, c := range cmd.Commands() {
		reference(b, c)
	}
}

func flags(b *strings.Builder, fs *pflag.FlagSet) {
	rows := ""
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" {
			name += " " + value
		}
		def := f.DefValue
		if def == "" || def == "[]" || def == "false" {
			def = " "
		} else {
			def = "`" + strings.Trim(def, "[]") + "`"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", "\\|"), usage, def)
	})
	if rows != "" {
		b.WriteString("\n| Flag | Is | Default |\n|---|---|---|\n" + rows)
	}
}

// The documentation names every command and flag as they are.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the reference", page)
	}
	var b strings.Builder
	reference(&b, root.New(cli.New(strings.NewReader(""), &clitest.Buffer{}, &clitest.Buffer{})))
	b.WriteString("\n")
	if *rewrite {
		if err := os.WriteFile(page, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != b.String() {
		t.Errorf("the reference in %s is not that of the binary: write it with go test ./cmd/holdfast/internal/root -run TestReference -args -rewrite", page)
	}
}
