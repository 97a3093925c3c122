package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS returns the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) MkdirAll(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for at := filepath.Clean(dir); ; {
		parent := filepath.Dir(at)
		if parent == at {
			return nil
		}
		if err := syncDir(parent); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return nil // not ours, and there before
			}
			return err
		}
		at = parent
	}
}

func (osFS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			out = append(out, Info{e.Name(), info.Size()})
		}
	}
	return out, nil
}

func (osFS) Open(path string, mode Mode) (File, error) {
	flags := [...]int{os.O_RDONLY, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC}[mode]
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }
func (osFS) SyncDir(dir string) error     { return syncDir(dir) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osFS) Space(dir string) (free, total uint64, err error) {
	if free, total, err = space(dir); err != nil {
		return 0, 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return free, total, nil
}

type osFile struct{ *os.File }

func (f *osFile) WriteAt(bufs [][]byte, off int64) error { return pwritev(f.File, bufs, off) }
func (f *osFile) Sync() error                            { return fdatasync(f.File) }

func (f *osFile) Forget() { forget(f.File) }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
