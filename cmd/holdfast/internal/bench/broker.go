package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

// own is a broker process of the benchmark's own.
type own struct {
	o    *Options
	dir  string
	addr string
	http string // where profiles are, empty for nowhere
	*proc.Process

	log *watcher
}

// watcher keeps a broker's log, and notices the line that tells its address.
type watcher struct {
	mu        sync.Mutex
	text      bytes.Buffer
	rest      []byte
	http      string
	listening chan string
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text.Len() < 1<<20 {
		w.text.Write(p)
	}
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte{'\n'})
		if !ok {
			return len(p), nil
		}
		w.rest = rest
		var l struct{ Msg, Address, HTTP string }
		if json.Unmarshal(line, &l) != nil {
			continue
		}
		switch l.Msg {
		case "health and metrics":
			w.http = l.HTTP
		case "listening":
			select {
			case w.listening <- l.Address:
			default:
			}
		}
	}
}

func (w *watcher) web() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.http
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(w.text.String())
}

// newOwn makes a directory for a broker, which start starts.
func newOwn(o *Options, dir string) (*own, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the broker's directory: %w", err)
	}
	b := &own{o: o, dir: dir, addr: "127.0.0.1:0"}
	if o.network.Value == "unix" {
		b.addr = "unix:" + filepath.Join(o.sockets, "broker")
	}
	return b, nil
}

func (o *Options) journalIn(dir string) string { return strings.ReplaceAll(o.journal, dirWord, dir) }

// start starts the broker, again at the address that it had, and returns once it listens.
func (b *own) start(ctx context.Context) (err error) {
	b.log = &watcher{listening: make(chan string, 1)}
	args := append([]string{"serve", "--journal", b.o.journalIn(b.dir), "--listen", b.addr, "--log-format", "json"}, b.o.serveArgs...)
	if b.o.profile == "" {
		args = append(args, "--http", "")
	} else {
		args = append(args, "--http", "127.0.0.1:0", "--pprof")
	}
	if b.Process, err = proc.StartIn(worker.Environment(), b.o.binary, args, b.log); err != nil {
		return err
	}
	select {
	case b.addr = <-b.log.listening:
		b.http = b.log.web()
		return nil
	case <-b.Done():
		return fmt.Errorf("the broker ended:\n%s", b.log)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), b.Kill())
	}
}

// stopPatience is how long a broker may take to stop.
const stopPatience = time.Minute

// stop stops the broker in good order.
func (b *own) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if err := b.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := b.Wait(ctx)
	if err != nil {
		return errors.Join(err, b.Kill())
	}
	if code != 0 {
		return fmt.Errorf("the broker ended with exit code %d:\n%s", code, b.log)
	}
	return nil
}

// remove ends the broker, if it has not ended, and removes its directory.
func (b *own) remove() error {
	var err error
	if b.Process != nil {
		err = b.Kill()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
