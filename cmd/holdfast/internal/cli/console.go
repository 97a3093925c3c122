package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Console is standard error. On a terminal its last line may be a status, which stays below what is written. It can be used
// concurrently.
type Console struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	status   string
}

// NewConsole returns a console that writes to w. terminal tells that statuses can be shown.
func NewConsole(w io.Writer, terminal bool) *Console { return &Console{w: w, terminal: terminal} }

// Terminal tells that a person is watching.
func (c *Console) Terminal() bool { return c.terminal }

// Stream is what a child process is to have as its standard error: the file itself where there is one.
func (c *Console) Stream() io.Writer {
	if f, ok := c.w.(*os.File); ok {
		return f
	}
	return c
}

const clearLine = "\r\x1b[K"

// Write writes whole lines, above the status.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		return c.w.Write(p)
	}
	if _, err := io.WriteString(c.w, clearLine); err != nil {
		return 0, err
	}
	n, err := c.w.Write(p)
	if err == nil {
		_, err = io.WriteString(c.w, c.status)
	}
	return n, err
}

func (c *Console) setStatus(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s != c.status {
		c.status = s
		_, _ = io.WriteString(c.w, clearLine+s) // it is only for the eye
	}
}

// progressEvery is how often a status is drawn anew.
const progressEvery = 200 * time.Millisecond

// Progress shows what text returns as the status, until stop is called. It does nothing where there is no terminal. text
// is called by another goroutine; an empty text shows nothing.
func (c *Console) Progress(text func() string) (stop func()) {
	if !c.terminal {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		defer c.setStatus("")
		for {
			select {
			case <-t.C:
				c.setStatus(text())
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}
