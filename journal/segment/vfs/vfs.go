// Package vfs is the file system as the segment log needs it: that of the operating system, and one in memory
// that can be crashed, filled and made to fail.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// ErrHeld is what FS.Lock returns of a lock that somebody has.
var ErrHeld = errors.New("lock is held")

// Mode says how FS.Open opens a file.
type Mode int

const (
	// Read opens a file that exists, for reading only.
	Read Mode = iota
	// Write opens a file for reading and writing, and makes it if it does not exist.
	Write
	// Create makes a new, empty file, in place of one that exists.
	Create
)

// Info describes a file.
type Info struct {
	Name string // without the directory
	Size int64  // bytes
}

// FS is a file system. All methods may be called concurrently. Errors about what does not exist match fs.ErrNotExist, those about
// space syscall.ENOSPC.
type FS interface {
	// MkdirAll makes a directory and its parents, durably.
	MkdirAll(dir string) error
	// List returns the files of a directory in no special order.
	List(dir string) ([]Info, error)
	// Open opens a file.
	Open(path string, mode Mode) (File, error)
	// Rename gives a file another name, in place of one that has it. It is durable after SyncDir.
	Rename(from, to string) error
	// Remove deletes a file. It is durable after SyncDir.
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes a lock for this FS value, by a file that it makes. Closing the result gives it back. ErrHeld: somebody has it.
	Lock(path string) (io.Closer, error)
	// Space returns the free and the total bytes of the file system that a directory is on. errors.ErrUnsupported: it does not tell.
	Space(dir string) (free, total uint64, err error)
}

// File is an open file. ReadAt, WriteAt and Sync may be called concurrently.
type File interface {
	io.ReaderAt
	io.Closer
	// WriteAt writes the concatenation of bufs at an offset. It changes neither bufs nor what is in it.
	WriteAt(bufs [][]byte, off int64) error
	// Sync makes what was written, and the file's size, durable.
	Sync() error
	// Forget lets the operating system drop what it caches of the file and has written, because it is read late, or never.
	Forget()
	// Size returns the file's size in bytes.
	Size() (int64, error)
}

// ReadFile returns the content of a file.
func ReadFile(f FS, path string) ([]byte, error) {
	h, err := f.Open(path, Read)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	n, err := h.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	got, err := h.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:got], err
}

// WriteFile puts a file in place durably: all of it or none.
func WriteFile(f FS, dir, name string, data []byte) error {
	tmp, path := filepath.Join(dir, name+".new"), filepath.Join(dir, name)
	h, err := f.Open(tmp, Create)
	if err != nil {
		return err
	}
	if err = h.WriteAt([][]byte{data}, 0); err == nil {
		err = h.Sync()
	}
	if err = errors.Join(err, h.Close()); err == nil {
		err = f.Rename(tmp, path)
	}
	if err == nil {
		err = f.SyncDir(dir)
	}
	return err
}

// Stat returns the size of a file.
func Stat(f FS, dir, name string) (int64, error) {
	all, err := f.List(dir)
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		if i.Name == name {
			return i.Size, nil
		}
	}
	return 0, &fs.PathError{Op: "stat", Path: filepath.Join(dir, name), Err: fs.ErrNotExist}
}
