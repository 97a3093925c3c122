package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// App is what a command runs with. Tests make their own; the binary's is made by New.
type App struct {
	// In, Out and Err are the standard streams.
	In  io.Reader
	Out io.Writer
	Err *Console
	// InTerminal and OutTerminal tell that a person is at the other end of In and Out.
	InTerminal, OutTerminal bool
	// Env looks up a variable of the environment.
	Env func(name string) (value string, ok bool)
	// Log is the log that the flags ask for. It is set before a command runs.
	Log *slog.Logger
	// Version is that of the binary.
	Version string

	sources map[string]Source // of flags, by name

	hurryOnce sync.Once
	hurry     chan struct{}
}

// New returns an App on the given streams, as the process has them: those that are files may be terminals.
func New(in io.Reader, out, err io.Writer) *App {
	return &App{
		In: in, Out: out, Err: NewConsole(err, isTerminal(err)),
		InTerminal: isTerminal(in), OutTerminal: isTerminal(out),
		Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), Version: "unknown",
		hurry: make(chan struct{}),
	}
}

// Say writes a remark to standard error, one line.
func (a *App) Say(format string, args ...any) {
	// If nobody reads it, there is nobody to tell.
	_, _ = fmt.Fprintf(a.Err, "holdfast: "+format+"\n", args...)
}

// signalPause is how soon after the first signal another one counts as the same: timeout(1) sends one to the process and one to its group.
const signalPause = 200 * time.Millisecond

// Watch makes the first SIGINT or SIGTERM end the returned context, with ErrInterrupted as its cause, and the second
// one close Hurry. A third one ends the process. Writing to a closed pipe becomes an error of the write. stop
// ends the watch.
func (a *App) Watch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	// Noticed, not ignored: what a command starts shall not inherit it.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-got:
			cancel(ErrInterrupted)
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case <-got:
				if time.Since(first) < signalPause {
					continue
				}
				signal.Stop(got)
				a.HurryUp()
			case <-done:
			}
			return
		}
	})
	return ctx, func() {
		signal.Stop(got)
		signal.Stop(pipe)
		close(done)
		wg.Wait()
		cancel(nil)
	}
}

// Hurry is closed when the user asked a second time to stop: what can be left is left.
func (a *App) Hurry() <-chan struct{} { return a.hurry }

// HurryUp closes Hurry.
func (a *App) HurryUp() { a.hurryOnce.Do(func() { close(a.hurry) }) }

// Linger returns a context that outlives ctx by patience, so that what was begun can be ended; it ends at once when the user
// asks a second time to stop.
func (a *App) Linger(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-stop:
			return
		}
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-t.C:
		case <-a.hurry:
		case <-stop:
		}
		cancel(context.Cause(ctx))
	})
	return out, sync.OnceFunc(func() { close(stop); wg.Wait(); cancel(nil) })
}

// Finish returns a context for what remains to be done once ctx has ended: it ends after patience, or when the user
// asks a second time to stop.
func (a *App) Finish(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	stop := make(chan struct{})
	go func() {
		select {
		case <-a.hurry:
			cancel()
		case <-stop:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(stop); cancel() })
}
