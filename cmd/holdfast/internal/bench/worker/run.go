package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/ceiling"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/memory"
)

// progressEvery is how often a worker says how far it is.
const progressEvery = 100 * time.Millisecond

// The words that a worker is told after its Spec.
const (
	wordGo   = "go"
	wordStop = "stop"
)

// errLeft ends a worker whose starter has gone.
var errLeft = errors.New("nobody listens to this worker any more")

// worker is a worker process.
type worker struct {
	spec  Spec
	parts []*running
	setup []func(ctx context.Context) error // of each part: what it does
	close []func() error                    // what is open, in the order of its opening
	addr  string

	mu  sync.Mutex
	out *json.Encoder
}

// tuneMemory sets what the environment (GOGC) does not: with a broker in the process, what a broker has. How often a client collects its garbage is
// not what is measured: it has as much memory as bench/peers gives the clients of other queues.
func (w *worker) tuneMemory() {
	if w.spec.Embedded != "" {
		memory.Tune()
		return
	}
	if _, ok := os.LookupEnv("GOGC"); !ok {
		debug.SetGCPercent(1600)
		debug.SetMemoryLimit(1 << 30)
	}
}

// Run is the life of a worker process. options say how it reaches a broker.
func Run(ctx context.Context, in io.Reader, out io.Writer, options client.Options, log *slog.Logger) (err error) {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	w := &worker{out: json.NewEncoder(out)}
	if err := json.Unmarshal(text, &w.spec); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	w.tuneMemory()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin, stop := make(chan struct{}), make(chan struct{})
	go obey(lines, begin, stop, cancel)
	defer func() {
		for i := len(w.close) - 1; i >= 0; i-- {
			err = errors.Join(err, w.close[i]())
		}
	}()
	if err := w.open(ctx, options, log); err != nil {
		return err
	}
	if err := w.say(said{Ready: &ready{Addr: w.addr}}); err != nil {
		return err
	}
	select {
	case <-begin:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if w.spec.Profile != "" {
		f, err := os.Create(w.spec.Profile)
		if err != nil {
			return fmt.Errorf("write a profile: %w", err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(fmt.Errorf("write a profile: %w", err), f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	return w.work(ctx, stop)
}

// obey passes on what the worker is told. The end of its input ends it.
func obey(lines *bufio.Reader, begin, stop chan struct{}, cancel context.CancelCauseFunc) {
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			cancel(errLeft)
			return
		}
		switch text {
		case wordGo + "\n":
			close(begin)
		case wordStop + "\n":
			close(stop)
		}
	}
}

func (w *worker) say(s said) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Encode(s); err != nil {
		return fmt.Errorf("say how far it is: %w", err)
	}
	return nil
}

// open connects, and makes ready what the parts need.
func (w *worker) open(ctx context.Context, o client.Options, log *slog.Logger) error {
	var queueOf func(string) *holdfast.Queue
	for _, p := range w.spec.Parts {
		r := &running{Part: p}
		w.parts = append(w.parts, r)
		var do func(context.Context) error
		switch p.Kind {
		case Send, Receive:
			if queueOf == nil {
				var err error
				if queueOf, err = w.connect(ctx, o, log); err != nil {
					return err
				}
			}
			r.queue = queueOf
			do = r.send
			if p.Kind == Receive {
				do = r.receive
			}
		case BareServe, DeliverServe:
			l, addr, err := p.listen(ctx)
			if err != nil {
				return err
			}
			w.addr = addr
			if do, err = w.serving(r, l); err != nil {
				return errors.Join(err, l.Close())
			}
		case BareSend:
			do = r.bareSend
		case Deliver:
			do = r.deliver
		case DeliverSend:
			do = r.deliverSend
		default:
			return fmt.Errorf("there are no parts of kind %q", p.Kind)
		}
		w.setup = append(w.setup, do)
	}
	return nil
}

func (w *worker) serving(r *running, l net.Listener) (func(context.Context) error, error) {
	if r.Kind == DeliverServe {
		return func(ctx context.Context) error { return r.deliverServe(ctx, l) }, nil
	}
	log, err := ceiling.NewLog(r.Dir)
	if err != nil {
		return nil, err
	}
	w.close = append(w.close, log.Close)
	return func(ctx context.Context) error { return r.bareServe(ctx, l, log) }, nil
}

// connect connects to a broker, or makes one in this process.
func (w *worker) connect(ctx context.Context, o client.Options, log *slog.Logger) (func(string) *holdfast.Queue, error) {
	if w.spec.Embedded == "" {
		c, err := client.Dial(ctx, o)
		if err != nil {
			return nil, err
		}
		w.close = append(w.close, func() error { c.Close(); return nil })
		return c.Queue, nil
	}
	j, err := journals.Open(ctx, w.spec.Embedded, journals.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	w.close = append(w.close, j.Close)
	b, err := broker.Open(ctx, j, broker.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	w.close = append(w.close, func() error { return b.Close(context.WithoutCancel(ctx)) })
	return b.Queue, nil
}

// work does all parts, and says what was measured.
func (w *worker) work(ctx context.Context, stop chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	for _, p := range w.parts {
		p.began, p.stop = began, stop
	}
	var wg sync.WaitGroup
	for i := range w.parts {
		wg.Go(func() {
			if err := w.setup[i](ctx); err != nil {
				cancel(err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		case <-t.C:
		}
		n := int64(0)
		for _, p := range w.parts {
			if p.Kind == w.parts[len(w.parts)-1].Kind {
				n += p.done.Load()
			}
		}
		if err := w.say(said{Progress: &n}); err != nil {
			cancel(err)
			<-ended
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s := said{}
	for _, p := range w.parts {
		s.Result = append(s.Result, p.result())
	}
	return w.say(s)
}
