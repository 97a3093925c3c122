// Command holdfast is the broker of Holdfast and its tools. "holdfast help" says more.
package main

import (
	"os"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/root"
)

func main() { os.Exit(root.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
