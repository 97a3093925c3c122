package transport

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdfastmq/holdfast/rpc/wire"
)

const (
	firstBuffer = 4 << 10  // of a connection that has said little
	readBuffer  = 64 << 10 // of one that says much
	// eagerBulk is the length up to which memory for messages is taken as soon as their header is read; for more,
	// only as they arrive.
	eagerBulk = 256 << 10
)

// frameReader takes frames off a connection.
type frameReader struct {
	src     io.Reader
	buf     []byte
	r, w    int // what lies in buf unread
	maxBulk int
	head    [wire.HeaderSize]byte
	// before is called before each read from src.
	before func() error
	// after is called with what each read has brought.
	after func(n int)
}

// next returns the next frame. The payload of frames of messages belongs to the caller; others are valid until the
// next call. io.EOF stands for an end between two frames.
func (f *frameReader) next() (wire.Header, []byte, error) {
	if err := f.fill(wire.HeaderSize); err != nil {
		if errors.Is(err, io.EOF) && f.r != f.w {
			err = io.ErrUnexpectedEOF
		}
		return wire.Header{}, nil, err
	}
	h, err := wire.ParseHeader(f.buf[f.r:f.w], f.maxBulk)
	if err != nil {
		return h, nil, err
	}
	f.r += copy(f.head[:], f.buf[f.r:])
	payload, err := f.payload(h)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return h, nil, fmt.Errorf("%s frame of %d bytes: %w", h.Type, h.Length, err)
	}
	return h, payload, h.Verify(f.head[:], payload)
}

func (f *frameReader) payload(h wire.Header) ([]byte, error) {
	n := int(h.Length)
	if !h.Type.Bulk() && n <= readBuffer {
		if err := f.fill(n); err != nil {
			return nil, err
		}
		p := f.buf[f.r : f.r+n : f.r+n]
		f.r += n
		return p, nil
	}
	p := make([]byte, min(n, eagerBulk))
	have := copy(p, f.buf[f.r:f.w])
	f.r += have
	for {
		if err := f.readFull(p[have:]); err != nil {
			return nil, err
		}
		if have = len(p); have == n {
			return p, nil
		}
		// What was promised and came so far is worth as much again.
		more := make([]byte, min(n, 4*have))
		copy(more, p)
		p = more
	}
}

func (f *frameReader) readFull(p []byte) error {
	for len(p) > 0 {
		n, err := f.read(p)
		if p = p[n:]; err != nil && len(p) > 0 {
			return err
		}
	}
	return nil
}

// fill makes at least n bytes lie in buf unread; n is at most readBuffer.
func (f *frameReader) fill(n int) error {
	if f.w-f.r >= n {
		return nil
	}
	switch {
	case f.r == f.w:
		f.r, f.w = 0, 0
	case len(f.buf)-f.r < n:
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	if len(f.buf) < n {
		f.grow(n)
	}
	for f.w-f.r < n {
		k, err := f.read(f.buf[f.w:])
		if f.w += k; err != nil && f.w-f.r < n {
			return err
		}
	}
	if f.w == len(f.buf) && f.w < readBuffer {
		// The peer had more to say than there was room for.
		f.grow(readBuffer)
	}
	return nil
}

func (f *frameReader) grow(n int) {
	b := make([]byte, max(n, firstBuffer))
	f.w = copy(b, f.buf[f.r:f.w])
	f.r, f.buf = 0, b
}

func (f *frameReader) read(p []byte) (int, error) {
	if f.before != nil {
		if err := f.before(); err != nil {
			return 0, err
		}
	}
	n, err := f.src.Read(p)
	if n > 0 {
		if f.after != nil {
			f.after(n)
		}
	} else if err == nil {
		err = io.ErrNoProgress
	}
	return n, err
}
