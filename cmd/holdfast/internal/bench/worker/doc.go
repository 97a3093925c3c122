// Package worker is the processes that a benchmark works with: what they are told to do (Spec), how they do it, and how they are started and listened to.
//
// A worker is the binary itself with a hidden command. It reads its Spec from standard input, says that it is ready once it is connected, begins when it
// is told to, tells how far it is, and ends with a Result. When its standard input ends, so does the worker, however it was left.
package worker
