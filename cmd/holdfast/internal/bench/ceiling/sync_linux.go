package ceiling

import (
	"os"
	"syscall"
	"time"
)

// sleepUntil waits by the system's own clock: timers of the Go runtime may be much later.
func sleepUntil(at time.Time) {
	for d := time.Until(at); d > 0; d = time.Until(at) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // interrupted, it goes round again
	}
}

// syncData is fdatasync.
func syncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
