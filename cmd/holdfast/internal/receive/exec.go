package receive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

// killPatience is how long a command may take to end after SIGTERM before it gets SIGKILL.
const killPatience = 2 * time.Second

// errHurry is why a command is stopped when the user asks a second time to stop.
var errHurry = errors.New("stopped: interrupted again")

// execute runs the command for each message. Each worker asks for one message at a time, so that none is held that nobody works on.
func (j *job) execute(receiving context.Context, end context.CancelCauseFunc) {
	var workers sync.WaitGroup
	for range j.f.workers {
		workers.Go(func() {
			for {
				ds := j.receive(receiving, 1)
				if len(ds) == 0 {
					if j.hasFailed() {
						end(errors.New("failed")) // the reason is kept elsewhere
					}
					return
				}
				j.idle.begin()
				j.handle(receiving, ds[0])
				j.idle.finish()
			}
		})
	}
	stop := context.AfterFunc(receiving, func() {
		if n := j.runningNow(); n > 0 && errors.Is(context.Cause(receiving), cli.ErrInterrupted) {
			j.a.Say("interrupted: waiting for %s; interrupt again to stop them", cli.Count(n, "running command"))
		}
	})
	workers.Wait()
	stop()
}

func (j *job) hasFailed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err != nil
}

func (j *job) runningNow() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.running)
}

// handle runs the command for a message, and settles the message by how that ends.
func (j *job) handle(ctx context.Context, d *holdfast.Delivery) {
	receipt := d.Receipt()
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	j.mu.Lock()
	j.running[receipt] = cancel
	j.mu.Unlock()
	err := j.runCommand(run, d)
	j.mu.Lock()
	delete(j.running, receipt)
	j.mu.Unlock()

	// Only now: the command may have run long after the interruption.
	ctx, stop := j.a.Linger(ctx, settlePatience)
	defer stop()
	what := fmt.Sprintf("message %s", d.ID)
	switch {
	case err == nil:
		j.settled(1, what, d.Ack(ctx))
		return
	case errors.Is(err, holdfast.ErrLeaseLost):
		j.settled(1, what, fmt.Errorf("its command was stopped: %w", err))
		return
	case errors.Is(err, errHurry):
		// Not the message's fault. If the broker does not learn of it now, the end of the connection tells it.
		quick, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, d.Release(quick))
	default:
		if nack := d.Nack(ctx, -1); nack != nil {
			j.a.Log.Warn("message could not be given back; it comes again when its lease ends", "id", d.ID, "error", nack)
		}
	}
	j.a.Say("%s, delivery %d: %v", what, d.Attempt, err)
	j.mu.Lock()
	j.failed++
	j.mu.Unlock()
}

// runCommand runs the command in a process group of its own, so that a signal from the terminal does not reach it.
func (j *job) runCommand(ctx context.Context, d *holdfast.Delivery) error {
	cmd := exec.Command("/bin/sh", "-c", j.f.exec)
	cmd.Env = append(os.Environ(), environment(d)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdin = bytes.NewReader(d.Body)
	cmd.Stdout, cmd.Stderr = j.a.Out, j.a.Err.Stream()
	cmd.WaitDelay = killPatience
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the command: %w", err)
	}
	ended := make(chan struct{})
	var failed error // read after ended
	go func() {
		failed = cmd.Wait()
		close(ended)
	}()
	var why error
	select {
	case <-ended:
		if failed != nil {
			return fmt.Errorf("the command failed: %w", failed)
		}
		return nil
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-j.a.Hurry():
		why = errHurry
	}
	kill := func(s syscall.Signal) {
		if err := syscall.Kill(-cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			j.a.Log.Warn("cannot stop the command", "pid", cmd.Process.Pid, "error", err)
		}
	}
	kill(syscall.SIGTERM)
	t := time.NewTimer(killPatience)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		kill(syscall.SIGKILL)
		<-ended
	}
	return why
}

// environment is what a command learns of its message.
func environment(d *holdfast.Delivery) []string {
	env := []string{
		"HOLDFAST_MSG_ID=" + d.ID.String(),
		"HOLDFAST_QUEUE=" + d.Queue(),
		"HOLDFAST_DELIVERY=" + strconv.Itoa(d.Attempt),
		"HOLDFAST_RECEIPT=" + d.Receipt().String(),
		"HOLDFAST_HEADERS=" + compact(cli.HeaderObject(d.Headers)),
	}
	if pair := cli.HeaderPair(d.Headers); len(pair) > 0 && pair[0].Name != "headers" {
		env = append(env, "HOLDFAST_HEADERS_BASE64="+compact(pair[0].Value))
	}
	return env
}

func compact(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it has nothing but strings
	}
	return strings.TrimSuffix(b.String(), "\n")
}
