// Package measure is what measurements are made of: latency histograms, figures that have a value in each of several runs, series over time, and the
// report of a benchmark with all of them.
package measure
