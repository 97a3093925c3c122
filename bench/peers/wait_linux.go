package main

import (
	"syscall"
	"time"
)

// waitUntil waits by the system's own clock: timers of the Go runtime are up to a millisecond late where nothing else happens.
func waitUntil(at time.Time) {
	for {
		d := time.Until(at)
		if d <= 0 {
			return
		}
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // interrupted, it goes round again
	}
}
