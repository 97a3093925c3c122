//go:build !linux

package ceiling

import "os"

// syncData is the nearest that there is to fdatasync.
func syncData(f *os.File) error { return f.Sync() }
