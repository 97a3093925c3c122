package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// spec says what a client process does. Times are counted from when it is told to begin.
type spec struct {
	Peer, Addr, Queue string
	Send, Receive     bool
	Payload, Window   int
	Count             int64   // end after so many messages; 0: when the time is over
	Rate              float64 // messages a second; 0: as fast as possible
	Ahead             int64   // how many more may be sent than were received; 0: no limit
	Warmup, Duration  time.Duration
}

// result is what a client process has measured.
type result struct {
	Rate  float64 `json:"rate"` // in the time that is measured
	Total int64   `json:"total"`
	// P50, P99 and P999 are the time from when a message was due, or sent, to its handler, in microseconds.
	P50, P99, P999 float64
	Samples        int64
	CPU            float64 `json:"cpu"` // cores
}

// line is what a client process says.
type line struct {
	Ready    bool    `json:"ready,omitempty"`
	Progress int64   `json:"progress,omitempty"`
	Result   *result `json:"result,omitempty"`
}

const (
	sampleEvery   = 64
	progressEvery = 20 * time.Millisecond
	answerTime    = 30 * time.Second
	lateTime      = time.Second
)

// work is a client at work.
type work struct {
	spec
	began     time.Time
	sent      atomic.Int64 // and stored
	acked     atomic.Int64 // received and acknowledged
	measuring atomic.Bool
	received  atomic.Int64 // by the other side
	more      chan struct{}
	stop      chan struct{}
	halting   sync.Once

	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

// client is the life of a client process.
func client(ctx context.Context, s spec, in io.Reader, out io.Writer) error {
	known, err := find(s.Peer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := known[0].connect(ctx, s.Addr)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.Peer, err)
	}
	defer c.close()
	w := &work{spec: s, more: make(chan struct{}, 1), stop: make(chan struct{}), hist: hdrhistogram.New(100, int64(10*time.Minute), 3)}
	var snd sender
	if s.Send { // its connection is part of getting ready
		if snd, err = c.sender(ctx, s.Queue, s.Window); err != nil {
			return fmt.Errorf("open a sender of %s: %w", s.Peer, err)
		}
	}
	begin := make(chan struct{})
	go w.obey(in, begin, cancel)
	enc := json.NewEncoder(out)
	if err := enc.Encode(line{Ready: true}); err != nil {
		return err
	}
	ended := make(chan error, 2)
	if s.Receive {
		// It takes some peers a while until the first message comes.
		go func() { ended <- w.receive(ctx, c) }()
	}
	var r result
	measured := make(chan struct{})
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	for going := true; going; {
		select {
		case <-begin:
			begin = nil
			w.began = time.Now()
			if s.Send {
				go w.sendAll(ctx, snd, measured, ended)
			}
			go func() {
				defer close(measured)
				if s.Count == 0 {
					r = w.measure(ctx)
				}
			}()
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			if err != nil {
				return err
			}
			going = false
		case <-t.C:
		}
		if err := enc.Encode(line{Progress: w.done().Load()}); err != nil {
			return err
		}
	}
	if begin != nil {
		return errors.New("it ended before it began")
	}
	<-measured
	r.Total = w.done().Load()
	return enc.Encode(line{Result: &r})
}

// sendAll sends. A process that receives as well ends by that: once it is measured, its receiver is ended.
func (w *work) sendAll(ctx context.Context, s sender, measured <-chan struct{}, ended chan<- error) {
	err := w.send(ctx, s)
	if !w.Receive || err != nil {
		ended <- err
		return
	}
	<-measured
	// What has received nothing has not been measured.
	for w.acked.Load() == 0 && ctx.Err() == nil {
		select {
		case <-w.more:
		case <-ctx.Done():
		}
	}
	w.halt()
}

// done counts what is measured: what a receiver has done if there is one.
func (w *work) done() *atomic.Int64 {
	if w.Receive {
		return &w.acked
	}
	return &w.sent
}

// obey does what the process is told: to begin, to stop, and how many messages the other side has received.
func (w *work) obey(in io.Reader, begin chan struct{}, cancel context.CancelCauseFunc) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var n int64
		switch text := lines.Text(); {
		case text == "go":
			close(begin)
		case text == "stop":
			w.halt()
		default:
			if _, err := fmt.Sscan(text, &n); err == nil {
				w.received.Store(n)
				w.wake()
			}
		}
	}
	cancel(errors.New("nobody listens to this process any more"))
}

// halt ends the receiver.
func (w *work) halt() { w.halting.Do(func() { close(w.stop) }) }

// wake makes a sender look again how far ahead it is.
func (w *work) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// measure waits for the time that is measured, and returns what happened in it.
func (w *work) measure(ctx context.Context) result {
	wait(ctx, time.Until(w.began.Add(w.Warmup)))
	at, n, used := time.Now(), w.done().Load(), cpuTime()
	w.measuring.Store(true)
	wait(ctx, w.Duration)
	w.measuring.Store(false)
	took := time.Since(at).Seconds()
	r := result{Rate: float64(w.done().Load()-n) / took, CPU: (cpuTime() - used).Seconds() / took}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Samples = w.hist.TotalCount(); r.Samples > 0 {
		us := func(p float64) float64 { return float64(w.hist.ValueAtPercentile(p)) / 1000 }
		r.P50, r.P99, r.P999 = us(50), us(99), us(99.9)
	}
	return r
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// send sends until the measured time is over, and waits for all answers.
func (w *work) send(ctx context.Context, s sender) error {
	if w.Rate > 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	plain := make([]byte, max(8, w.Payload))
	_, _ = rand.Read(plain) // it never fails
	binary.LittleEndian.PutUint64(plain, 0)
	done := func(err error) {
		if err != nil {
			cancel(fmt.Errorf("a message was not stored: %w", err))
			return
		}
		w.sent.Add(1)
	}
	end := w.began.Add(w.Warmup + w.Duration)
	for n := int64(0); ctx.Err() == nil && (w.Count == 0 || n < w.Count); n++ {
		body, due := plain, time.Time{}
		if w.Rate > 0 {
			due = w.began.Add(time.Duration(float64(n) / w.Rate * float64(time.Second)))
			waitUntil(due)
		} else if n%sampleEvery == 0 {
			due = time.Now()
		}
		if !due.IsZero() {
			// Whoever cannot keep the rate is late with the last one, but not for ever. One is sent however late it is: a receiver waits for it.
			if w.Count == 0 && n > 0 && (due.After(end) || time.Now().After(end.Add(lateTime))) {
				break
			}
			body = append([]byte{}, plain...)
			binary.LittleEndian.PutUint64(body, uint64(due.UnixNano()))
		}
		for w.Ahead > 0 && n-w.others() >= w.Ahead && ctx.Err() == nil && time.Now().Before(end) {
			select {
			case <-w.more:
			case <-ctx.Done():
			}
		}
		if err := s.send(ctx, body, done); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	flush, cancelFlush := context.WithTimeout(ctx, answerTime)
	defer cancelFlush()
	return errors.Join(s.flush(flush), context.Cause(ctx))
}

// others counts what the receiver has acknowledged, as far as the sender knows.
func (w *work) others() int64 {
	if w.Receive {
		return w.acked.Load()
	}
	return w.received.Load()
}

// receive receives until the process is told to stop.
func (w *work) receive(ctx context.Context, c conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := c.receive(ctx, w.Queue, func(body []byte) {
		if at := binary.LittleEndian.Uint64(body); at != 0 && w.measuring.Load() {
			w.mu.Lock()
			// Within the range there is no error.
			_ = w.hist.RecordValue(min(max(time.Now().UnixNano()-int64(at), 0), int64(10*time.Minute)))
			w.mu.Unlock()
		}
	}, func(n int) {
		w.acked.Add(int64(n))
		if w.Send {
			w.wake()
		}
	})
	select {
	case <-w.stop:
		return nil // however a peer ends when it is told to
	default:
		return err
	}
}
