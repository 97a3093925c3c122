package ceiling

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

const (
	// maxWrite is the most that the bare log writes at once.
	maxWrite = 1 << 20
	// logSize is the size of its file, which is written before and then written over again and again.
	logSize = 64 << 20
	// frameHeader is the length of what follows, and the number of messages in it.
	frameHeader = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log is a file that everything is appended to and synced, by one goroutine that takes what is waiting.
type Log struct {
	f    *os.File
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting []byte
	answers []answer
	closed  bool
	err     error
}

type answer struct {
	c    net.Conn
	upTo uint64
}

// NewLog makes a log in a new file in dir, written with zeros before.
func NewLog(dir string) (*Log, error) {
	f, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, fmt.Errorf("make a bare log: %w", err)
	}
	if err := prewrite(f, logSize); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	l := &Log{f: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.commit()
	return l, nil
}

// add hands frames over to be stored; c is told upTo when they are.
func (l *Log) add(frames []byte, c net.Conn, upTo uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.waiting = append(l.waiting, frames...)
	l.answers = append(l.answers, answer{c, upTo})
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// take returns what is waiting, and leaves the given buffers in its place.
func (l *Log) take(p []byte, a []answer) ([]byte, []answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, answers := l.waiting, l.answers
	l.waiting, l.answers = p[:0], a[:0]
	return taken, answers, l.closed
}

// commit stores what is waiting as one record with its checksum, and then answers, until the log is closed.
func (l *Log) commit() {
	defer close(l.done)
	var record []byte
	var answers []answer
	var ack [8]byte
	at := int64(0)
	for range l.wake {
		for {
			var closed bool
			if record, answers, closed = l.take(record, answers); len(record) == 0 {
				if closed {
					return
				}
				break
			}
			if err := l.store(record, &at); err != nil {
				l.mu.Lock()
				l.err = err
				l.mu.Unlock()
			}
			for i, a := range answers {
				if i+1 < len(answers) && answers[i+1].c == a.c {
					continue // the next one says it too
				}
				binary.LittleEndian.PutUint64(ack[:], a.upTo)
				// A client that went away is not told.
				_, _ = a.c.Write(ack[:])
			}
		}
	}
}

// store writes a record at a place in the file, in pieces if it is large, and syncs it.
func (l *Log) store(record []byte, at *int64) error {
	for len(record) > 0 {
		piece := record[:min(maxWrite, len(record))]
		record = record[len(piece):]
		if *at+int64(len(piece))+4 > logSize {
			*at = 0
		}
		sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(piece, castagnoli))
		if _, err := l.f.WriteAt(piece, *at); err != nil {
			return fmt.Errorf("write to the bare log: %w", err)
		}
		if _, err := l.f.WriteAt(sum, *at+int64(len(piece))); err != nil {
			return fmt.Errorf("write to the bare log: %w", err)
		}
		if err := syncData(l.f); err != nil {
			return fmt.Errorf("sync the bare log: %w", err)
		}
		*at += int64(len(piece)) + 4
	}
	return nil
}

// Close stores what is waiting, and removes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
	l.mu.Unlock()
	<-l.done
	return errors.Join(l.err, l.f.Close(), os.Remove(l.f.Name()))
}

// Serve takes the connections of a listener and stores the frames that come by them, until ctx ends.
func (l *Log) Serve(ctx context.Context, ln net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("take a connection to the bare log: %w", err)
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			defer c.Close()
			// How a connection ends is its client's to say.
			_ = l.read(c)
		})
	}
}

// read takes frames from a connection, looks at each message in them, and hands them over.
func (l *Log) read(c net.Conn) error {
	r := bufio.NewReaderSize(c, 256<<10)
	var head [frameHeader]byte
	var frame []byte
	for n := uint64(0); ; {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size, count := int(binary.LittleEndian.Uint32(head[:])), binary.LittleEndian.Uint32(head[4:])
		if size > 64<<20 {
			return errors.New("a frame of more than 64 MiB")
		}
		frame = append(frame[:0], head[:]...)
		frame = append(frame, make([]byte, size)...)
		body := frame[frameHeader:]
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		for range count {
			if len(body) < 4 {
				return io.ErrUnexpectedEOF
			}
			size := int(binary.LittleEndian.Uint32(body))
			if size > len(body)-4 {
				return io.ErrUnexpectedEOF
			}
			body = body[4+size:]
		}
		n += uint64(count)
		if err := l.add(frame, c, n); err != nil {
			return err
		}
	}
}
