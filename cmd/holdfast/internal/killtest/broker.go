package killtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

// Broker is a broker process on a folder of its own, that is killed at the end of the test.
type Broker struct {
	// Addr is where it answers, in all its lives.
	Addr string
	// Dir is the folder of its store.
	Dir string

	t    testing.TB
	args []string
	log  *os.File

	mu sync.Mutex
	p  *proc.Process
}

// NewBroker starts a broker.
func NewBroker(t testing.TB, args ...string) *Broker {
	t.Helper()
	dir := clitest.Dir(t)
	b := &Broker{Addr: "unix:" + filepath.Join(dir, "s"), Dir: filepath.Join(dir, "data"), t: t}
	b.args = append([]string{"serve", "--listen", b.Addr, "--http", "", "--journal", clitest.Journal(b.Dir)}, args...)
	var err error
	if b.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(b.log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the broker's log:\n%s", text[max(0, len(text)-8000):])
		}
		if err := b.log.Close(); err != nil {
			t.Error(err)
		}
	})
	b.Start()
	return b
}

// Start starts the broker's next life, and waits until it answers.
func (b *Broker) Start() {
	b.t.Helper()
	p, err := proc.Start(clitest.Binary(b.t), b.args, b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.p = p
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	if err := p.AwaitBroker(ctx, b.Addr); err != nil {
		b.t.Fatal(err)
	}
}

// Kill ends the broker with SIGKILL.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		return nil
	}
	select {
	case <-b.p.Done():
		code, err := b.p.Wait(context.Background())
		b.p = nil
		return errors.Join(fmt.Errorf("the broker had ended by itself, with exit code %d", code), err)
	default:
	}
	err := b.p.Kill()
	b.p = nil
	return err
}

// PID returns the number of the process.
func (b *Broker) PID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.p.PID()
}
