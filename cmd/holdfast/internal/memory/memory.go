// Package memory keeps a broker process small. It is for programs, not for libraries: what it sets holds for the whole process.
//
// A broker's memory is mostly frames of messages that pass through, which live for milliseconds. At Go's default (GOGC=100) twice the
// live bytes are used before they are collected; half of that costs a few percent of CPU. The storage engine has its memtables and
// cache outside the Go heap; the C library would spread those over up to eight arenas a core, each of which keeps what was freed: it gets
// two by importing this package. Without cgo, the storage engine takes its memory from the Go heap.
package memory

import (
	"os"
	"runtime/debug"
)

// gcPercent replaces GOGC's default.
const gcPercent = 50

// Tune sets what the environment (GOGC) does not; so does the import with MALLOC_ARENA_MAX.
func Tune() {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		debug.SetGCPercent(gcPercent)
	}
}
