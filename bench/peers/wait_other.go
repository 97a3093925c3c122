//go:build !linux

package main

import "time"

func waitUntil(at time.Time) {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	<-t.C
}

// syncDir does nothing where there is no call for it.
func syncDir(string) error { return nil }
