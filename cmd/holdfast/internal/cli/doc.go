// Package cli is what all commands of the binary share: where they read and write, how they end, where the values
// of their flags come from, how they log, and how they speak to a terminal.
//
// Data goes to standard output; everything else, errors, logs, progress and remarks, goes to standard error.
package cli
