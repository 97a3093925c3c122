package cli

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookForReader is how often it is seen whether anybody still reads standard output.
const lookForReader = 250 * time.Millisecond

// OutClosed has f called, once, when nobody reads standard output any more, as after "| head -1": a command that waits for something to write would not
// notice. err is what a write would fail with. Only of pipes and sockets that can be told; f is never called for anything else. stop ends
// the watch.
func (a *App) OutClosed(f func(err error)) (stop func()) {
	out, ok := a.Out.(*os.File)
	if !ok || !isPipe(out) {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(lookForReader)
		defer tick.Stop()
		for !readerGone(out) {
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
		f(&os.PathError{Op: "write", Path: out.Name(), Err: syscall.EPIPE})
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// readerGone tells that the other end of a pipe or socket is closed.
func readerGone(out *os.File) (gone bool) {
	raw, err := out.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		// Errors and hang-ups are told without being asked for.
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && gone
}
