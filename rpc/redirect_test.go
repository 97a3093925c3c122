package rpc_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/rpc"
)

// town is some servers in one process, at the addresses a:1, b:1, …, in virtual time.
type town struct {
	envs map[string]*env
	mu   sync.Mutex
	down map[string]bool // an address where connections are not answered
}

func newTown(t *testing.T, names ...string) *town {
	w := &town{envs: map[string]*env{}, down: map[string]bool{}}
	for _, name := range names {
		w.envs[name+":1"] = start(t, rpc.Options{}, newPipeListener())
	}
	return w
}

func (w *town) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down := w.down[address]
	w.mu.Unlock()
	if down {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return w.envs[address].dial(ctx, network, address)
}

// moved makes a broker say that every queue is at an address, which may change; empty: it is here.
func (w *town) moved(name string) *atomic.Value {
	var to atomic.Value
	to.Store("")
	w.envs[name+":1"].link.Opening = func(context.Context, string) error {
		if a := to.Load().(string); a != "" {
			return &holdfast.MovedError{Address: a}
		}
		return nil
	}
	return &to
}

func (w *town) client(t *testing.T, o client.Options) *client.Client {
	o.Dialer = w.dial
	return w.envs["a:1"].client(o)
}

// §8: a client goes where it is told to go, and remembers it.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		w.moved("a").Store("b:1")
		c := w.client(t, client.Options{Addrs: []string{"a:1"}})
		q := c.Queue("q")
		if _, err := q.Send(t.Context(), holdfast.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if got := w.envs["b:1"].link.Messages("q"); len(got) != 1 {
			t.Errorf("b has %v", got)
		}
		// Its own broker is not needed any more for this queue.
		w.moved("a").Store("nowhere")
		r, err := q.NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Receive(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Close(t.Context()), q.Close(t.Context())); err != nil {
			t.Error(err)
		}
		c.Close()
	})
}

// §8: while the owner that the brokers name does not answer, the client asks them again until they name another, and does not
// dial the silent one all the time.
func TestRedirectToASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b", "c")
		to := w.moved("a")
		to.Store("b:1")
		w.down["b:1"] = true
		c := w.client(t, client.Options{Addrs: []string{"a:1"}})
		q := c.Queue("q")
		began := time.Now()
		const until = 3 * time.Second
		time.AfterFunc(until, func() { to.Store("c:1") })
		if _, err := q.Send(t.Context(), holdfast.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < until || d > until+1500*time.Millisecond {
			t.Errorf("sent after %v", d)
		}
		if got := w.envs["c:1"].link.Messages("q"); len(got) != 1 {
			t.Errorf("c has %v", got)
		}
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
	})
}

// G9: brokers that send a client round in a circle are left after some seconds, and one that is not to follow is told.
func TestRedirectInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		w.moved("a").Store("b:1")
		w.moved("b").Store("a:1")
		c := w.client(t, client.Options{Addrs: []string{"a:1"}})
		began := time.Now()
		var moved *holdfast.MovedError
		_, _, err := c.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, newSenderLog())
		if !errors.As(err, &moved) {
			t.Errorf("opened: %v", err)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
		c.Close()
		still := w.client(t, client.Options{Addrs: []string{"a:1"}, NoRedirect: true})
		began = time.Now()
		if _, _, err := still.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, newSenderLog()); !errors.As(err, &moved) || moved.Address != "b:1" || time.Since(began) > 0 {
			t.Errorf("opened: %v", err)
		}
		still.Close()
	})
}

// pauseAdmin answers one call.
type pauseAdmin struct{ holdfast.Admin }

func (pauseAdmin) Pause(context.Context, string, bool) error { return nil }

// A broker that stands still keeps no administrative call, if another address is known.
func TestAdminOfASilentBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		w.envs["b:1"].link.AdminCalls = pauseAdmin{}
		mute, _ := net.Pipe() // takes everything and answers nothing
		c := w.envs["a:1"].client(client.Options{
			Addrs: []string{"a:1", "b:1"}, Lazy: true,
			Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "a:1" {
					return mute, nil
				}
				return w.dial(ctx, network, address)
			},
		})
		began := time.Now()
		if err := c.Admin().Pause(t.Context(), "q", true); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > client.DefaultDialTimeout+time.Second {
			t.Errorf("took %v", d)
		}
		c.Close()
	})
}
