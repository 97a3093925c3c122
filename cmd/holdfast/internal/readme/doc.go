// Package readme holds the test of the README: its examples run as they are printed.
package readme
