// Package memory is a journal that lives in the process: URL "memory:". It keeps the whole
// contract of package journal, and is meant for tests and trials.
//
// It has no goroutines, timers or waits, so it works inside a testing/synctest bubble. A
// [Store] is what would be on a disk: it can be opened by several handles at once, survives
// their Close, and can be crashed and damaged on purpose.
package memory
