package ceiling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Client sends messages to a bare log, with so many unanswered at most: what is waiting goes as one frame.
type Client struct {
	c      net.Conn
	window uint64
	// onAck, if not nil, is told how many messages are stored each time that this has changed.
	onAck func(stored uint64)
	wg    sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	buf     []byte // a frame that grows
	count   uint32
	sent    uint64
	acked   uint64
	err     error
}

// NewClient makes a client on a connection, which it closes. onAck, if not nil, is told how many messages are stored each time that this has
// changed, by a goroutine of the client.
func NewClient(c net.Conn, window int, onAck func(stored uint64)) *Client {
	cl := &Client{c: c, window: uint64(window), onAck: onAck}
	cl.changed.L = &cl.mu
	cl.wg.Go(cl.write)
	cl.wg.Go(cl.read)
	return cl
}

// Send sends a message; it waits while too many are unanswered.
func (cl *Client) Send(body []byte) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for cl.err == nil && cl.sent-cl.acked >= cl.window {
		cl.changed.Wait()
	}
	if cl.err != nil {
		return cl.err
	}
	if cl.count == 0 {
		cl.buf = append(cl.buf, make([]byte, frameHeader)...)
		cl.changed.Broadcast()
	}
	cl.buf = binary.LittleEndian.AppendUint32(cl.buf, uint32(len(body)))
	cl.buf = append(cl.buf, body...)
	cl.count++
	cl.sent++
	return nil
}

// Acked returns how many messages are stored.
func (cl *Client) Acked() uint64 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.acked
}

func (cl *Client) fail(err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.err == nil {
		cl.err = err
	}
	cl.changed.Broadcast()
}

// write sends what is waiting, again and again.
func (cl *Client) write() {
	var frame []byte
	for {
		cl.mu.Lock()
		for cl.count == 0 && cl.err == nil {
			cl.changed.Wait()
		}
		if cl.err != nil {
			cl.mu.Unlock()
			return
		}
		frame, cl.buf = cl.buf, frame[:0]
		count := cl.count
		cl.count = 0
		cl.mu.Unlock()
		binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
		binary.LittleEndian.PutUint32(frame[4:], count)
		if _, err := cl.c.Write(frame); err != nil {
			cl.fail(fmt.Errorf("write to the bare log: %w", err))
			return
		}
	}
}

// read takes the answers.
func (cl *Client) read() {
	var b [8]byte
	for {
		if _, err := io.ReadFull(cl.c, b[:]); err != nil {
			cl.fail(fmt.Errorf("read the bare log's answers: %w", err))
			return
		}
		cl.mu.Lock()
		cl.acked = binary.LittleEndian.Uint64(b[:])
		cl.changed.Broadcast()
		cl.mu.Unlock()
		if cl.onAck != nil {
			cl.onAck(binary.LittleEndian.Uint64(b[:]))
		}
	}
}

// Flush waits until all messages are stored.
func (cl *Client) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { cl.fail(context.Cause(ctx)) })
	defer stop()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for cl.err == nil && cl.acked < cl.sent {
		cl.changed.Wait()
	}
	return cl.err
}

// Close ends the connection.
func (cl *Client) Close() {
	cl.fail(errors.New("closed"))
	cl.c.Close()
	cl.wg.Wait()
}
