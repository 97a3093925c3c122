package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Source says where the value of a flag came from. A greater one goes first.
type Source int

// The sources of a flag's value.
const (
	FromDefault Source = iota
	FromFile
	FromEnv
	FromFlag
)

// EnvName returns the name of the environment variable that gives a flag its value.
func EnvName(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// notSettings are flags that only the command line gives.
var notSettings = map[string]bool{"help": true, "version": true}

// Settle gives the flags of cmd that the command line does not name their values from the environment and from the file that
// --config names. What is wrong with them is a usage error.
func (a *App) Settle(cmd *cobra.Command) error {
	a.sources = map[string]Source{}
	var errs []error
	path := ""
	if f := cmd.Flags().Lookup("config"); f != nil {
		path = f.Value.String()
		if v, ok := a.Env(EnvName("config")); path == "" && ok {
			path = v
		}
	}
	var file *configFile
	if path != "" {
		var err error
		if file, err = readConfig(path, cmd.Root()); err != nil {
			return Usage(err)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case notSettings[f.Name]:
			return
		case f.Changed:
			a.sources[f.Name] = FromFlag
			return
		}
		if v, ok := a.Env(EnvName(f.Name)); ok && v != "" {
			a.sources[f.Name] = FromEnv
			errs = append(errs, set(cmd, f, "environment variable "+EnvName(f.Name), envValues(f, v)))
			return
		}
		if values, where, ok := file.lookup(cmd, f.Name); ok {
			a.sources[f.Name] = FromFile
			errs = append(errs, set(cmd, f, where, values))
		}
	})
	return Usage(errors.Join(errs...))
}

// Source tells where the value of a flag came from.
func (a *App) Source(flag string) Source { return a.sources[flag] }

// envValues splits the value of a flag that can be given several times: one a line.
func envValues(f *pflag.Flag, v string) []string {
	if _, many := f.Value.(pflag.SliceValue); many {
		return strings.Split(strings.TrimSuffix(v, "\n"), "\n")
	}
	return []string{v}
}

func set(cmd *cobra.Command, f *pflag.Flag, where string, values []string) error {
	for _, v := range values {
		// By its name, so that it counts as changed.
		if err := cmd.Flags().Set(f.Name, v); err != nil {
			return fmt.Errorf("%s: %w", where, PlainFlag(err))
		}
	}
	return nil
}

// PlainFlag returns the error of a flag's value in plain words where it is that of a number's parser, and other errors as they are.
func PlainFlag(err error) error {
	var bad *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &bad) || !errors.As(err, &number) {
		return err
	}
	fault := "is not a whole number"
	if errors.Is(number, strconv.ErrRange) {
		fault = "is out of range"
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: %[1]q %[3]s", bad.GetValue(), bad.GetFlag().Name, fault)
}

// configFile is what the file that --config names says. A nil one says nothing.
type configFile struct {
	path string
	root *yaml.Node // a mapping, or nil if the file is empty
}

func readConfig(path string, root *cobra.Command) (*configFile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	c := &configFile{path: path}
	if len(doc.Content) == 0 {
		return c, nil
	}
	c.root = doc.Content[0]
	if err := c.check(c.root, root); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return c, nil
}

// check refuses what is neither a flag of cmd, or of a command below it, nor such a command: a name with a typing mistake must
// not pass for a setting.
func (c *configFile) check(m *yaml.Node, cmd *cobra.Command) error {
	if m.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want names of flags and commands, with their values", c.path, m.Line)
	}
	var errs []error
	for i := 0; i < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		if value.Kind == yaml.MappingNode {
			if sub := child(cmd, key.Value); sub != nil {
				errs = append(errs, c.check(value, sub))
			} else {
				errs = append(errs, fmt.Errorf("%s:%d: %q is no command", c.path, key.Line, key.Value))
			}
			continue
		}
		if notSettings[key.Value] || key.Value == "config" || !hasFlag(cmd, key.Value) {
			errs = append(errs, fmt.Errorf("%s:%d: %q is no flag of %s", c.path, key.Line, key.Value, cmd.CommandPath()))
		}
		if _, err := scalars(value); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", c.path, value.Line, key.Value, err))
		}
	}
	return errors.Join(errs...)
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// hasFlag tells whether cmd or a command below it has a flag of that name.
func hasFlag(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil {
		return true
	}
	for _, c := range cmd.Commands() {
		if hasFlag(c, name) {
			return true
		}
	}
	return false
}

// scalars returns the values of a setting: one, or those of a list.
func scalars(n *yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}, nil
	case yaml.AliasNode:
		return scalars(n.Alias)
	case yaml.SequenceNode:
		var all []string
		for _, c := range n.Content {
			if c.Kind == yaml.AliasNode {
				c = c.Alias
			}
			if c.Kind != yaml.ScalarNode {
				return nil, errors.New("want a value, or a list of values")
			}
			all = append(all, c.Value)
		}
		return all, nil
	}
	return nil, errors.New("want a value, or a list of values")
}

// lookup returns the values of a flag of cmd: from the most special section that has it.
func (c *configFile) lookup(cmd *cobra.Command, flag string) (values []string, where string, ok bool) {
	if c == nil || c.root == nil {
		return nil, "", false
	}
	words := strings.Fields(cmd.CommandPath())[1:]
	for m := c.root; m != nil; {
		var next *yaml.Node
		for i := 0; i < len(m.Content); i += 2 {
			key, value := m.Content[i], m.Content[i+1]
			switch {
			case value.Kind == yaml.MappingNode:
				if len(words) > 0 && key.Value == words[0] {
					next = value
				}
			case key.Value == flag:
				values, _ = scalars(value) // checked when it was read
				where, ok = fmt.Sprintf("%s:%d: %s", c.path, key.Line, flag), true
			}
		}
		m, words = next, words[min(1, len(words)):]
	}
	return values, where, ok
}
