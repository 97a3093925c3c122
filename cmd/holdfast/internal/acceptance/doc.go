// Package acceptance tries the real binary, in its default configuration, against the promises about memory, space on disk,
// backpressure and full disks. It has nothing but tests; docs/reliability.md tells their figures.
package acceptance
