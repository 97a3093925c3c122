//go:build !linux

package ceiling

import (
	"os"
	"time"
)

// sleepUntil waits.
func sleepUntil(at time.Time) { <-time.After(time.Until(at)) }

// syncData is the nearest that there is to fdatasync.
func syncData(f *os.File) error { return f.Sync() }
