// Package ceiling measures what a machine and a directory give without a queue: a file that is appended to and synced, and a bare framed
// connection into one synced log.
package ceiling

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

// prewritten is the size of a file that is written with zeros before it is used.
const prewritten = 64 << 20

// block is what Raw appends at a time.
const block = 4 << 10

// Raw writes blocks of 4 KiB to a new file in dir and syncs each (fdatasync), one after the other, for a while. The file grows,
// or is written before and is written over, as the log of a store that recycles its files is. If rate is not 0, so many are written a second at most,
// with pauses in which the processor and the disk fall asleep, as they do where there is little to do.
func Raw(ctx context.Context, dir string, over bool, rate float64, d time.Duration) (h *measure.Histogram, err error) {
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		return nil, fmt.Errorf("measure the raw disk: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	size := int64(0)
	if over {
		size = prewritten
		if err := prewrite(f, size); err != nil {
			return nil, err
		}
	}
	p := make([]byte, block)
	_, _ = rand.Read(p) // it never fails
	h = &measure.Histogram{}
	start := time.Now()
	for at, n, end := int64(0), 0, start.Add(d); time.Now().Before(end) && ctx.Err() == nil; at += block {
		if n++; rate > 0 {
			sleepUntil(start.Add(time.Duration(float64(n) / rate * float64(time.Second))))
		}
		if over && at == size {
			at = 0
		}
		began := time.Now()
		if _, err := f.WriteAt(p, at); err != nil {
			return nil, fmt.Errorf("measure the raw disk: %w", err)
		}
		if err := syncData(f); err != nil {
			return nil, fmt.Errorf("measure the raw disk: %w", err)
		}
		h.Record(time.Since(began))
	}
	return h, context.Cause(ctx)
}

// prewrite fills a file with zeros.
func prewrite(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return fmt.Errorf("write a file with zeros: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write a file with zeros: %w", err)
	}
	return nil
}
