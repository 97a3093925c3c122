package ceiling

import (
	"os"
	"syscall"
)

// syncData is fdatasync.
func syncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
