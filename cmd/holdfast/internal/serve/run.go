package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/memory"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/metrics"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/access"
)

// process is a running broker process: what was opened, to be closed in the opposite order.
type process struct {
	a     *cli.App
	f     *flags
	state state

	journal journal.Journal
	broker  *broker.Broker
	node    *cluster.Node // nil unless the journal can be shared
	server  *rpc.Server
	certs   *certificates

	tls    *tls.Config
	policy *access.Policy

	failed chan error // the first listener that broke
	wg     sync.WaitGroup
}

// run is the life of the process.
func run(ctx context.Context, a *cli.App, f *flags) error {
	memory.Tune()
	p := &process{a: a, f: f, failed: make(chan error, 1)}
	p.state.phase = "starting"
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	syncs := metrics.NewSyncs()
	if err := p.check(); err != nil {
		return err
	}
	web, err := p.health(ctx, syncs)
	if err == nil {
		err = p.open(ctx, syncs)
	}
	if err == nil {
		a.Log.Info("broker serves", "version", a.Version, "took", time.Since(began).Round(time.Millisecond))
		p.wg.Go(func() { p.announceReady(ctx, began) })
		err = p.wait(ctx)
	}
	cancel()
	stopErr := p.stop(ctx)
	if web != nil {
		_ = web.Close() // its listener; nobody is promised an answer
	}
	p.wg.Wait()
	switch {
	case err != nil:
		return errors.Join(err, stopErr)
	case stopErr != nil:
		select {
		case <-a.Hurry():
			return fmt.Errorf("left in a hurry: %w: %w", cli.ErrInterrupted, stopErr)
		default:
			return stopErr
		}
	}
	a.Log.Info("broker stopped")
	return nil
}

// check finds what is wrong with the flags and the files that they name, before anything is opened.
func (p *process) check() (err error) {
	if len(p.f.listen) == 0 {
		return cli.Usagef("--listen names no address")
	}
	if p.a.Source("journal") == cli.FromDefault {
		var move string
		if p.f.journal, move, err = journals.Default(defaultDir); err != nil {
			return err
		}
		if move != "" {
			p.a.Log.Info(move)
		}
	}
	if _, err := journals.Parse(p.f.journal); err != nil {
		return cli.Usage(err)
	}
	if err := p.f.checkValues(); err != nil {
		return err
	}
	if p.tls, p.certs, err = p.f.tlsConfig(); err != nil {
		return cli.Usage(err)
	}
	p.policy, err = p.f.loadPolicy()
	return cli.Usage(err)
}

// mostBody is more than any journal takes in a record, so that no journal needs to be opened to refuse it.
const mostBody = 1 << 30

// checkValues refuses what cannot be right, whatever the journal.
func (f *flags) checkValues() error {
	var errs []error
	if f.expiry != 0 && f.expiry < 3*f.heartbeat { // 0 means the default
		errs = append(errs, cli.Usagef("--expiry is %s, want at least three times --heartbeat, which is %s", &f.expiry, &f.heartbeat))
	}
	if f.maxBody > mostBody {
		errs = append(errs, cli.Usagef("--max-body is %s, want at most %s", &f.maxBody, cli.FormatSize(mostBody)))
	}
	return errors.Join(errs...)
}

// health begins to answer on the HTTP address, before anything that could take long.
func (p *process) health(ctx context.Context, syncs *metrics.Syncs) (*http.Server, error) {
	if p.f.http == "" {
		return nil, nil
	}
	l, err := rpc.Listen(ctx, p.f.http)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	web := &http.Server{
		Handler:           p.state.handler(metrics.Handler(p.a.Version, &p.state, syncs), p.f.pprof),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	p.wg.Go(func() {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.fail(fmt.Errorf("serve health and metrics: %w", err))
		}
	})
	p.a.Log.Info("health and metrics", "http", l.Addr().String())
	return web, nil
}

func (p *process) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// open opens the journal, the broker on it, and the front door.
func (p *process) open(ctx context.Context, syncs *metrics.Syncs) error {
	listeners, err := p.listen(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err := p.checkAddress(listeners); err != nil {
		return err
	}
	p.state.set("opening the journal", nil, nil)
	p.journal, err = journals.Open(ctx, p.f.journal, journals.Options{Logger: p.a.Log, OnSync: syncs.Observe})
	if err != nil {
		if errors.Is(err, journals.ErrURL) {
			return cli.Usage(err)
		}
		return err
	}
	switch loss := journals.Loss(p.journal); {
	case loss != nil && len(loss.Streams) == 0:
		p.a.Log.Error("the journal has lost what was stored; it can be read, and no queue can be used", "error", loss.Err)
	case loss != nil:
		p.a.Log.Error("the journal has lost what was stored of some queues; they can be read and not used, all others are served", "streams", strings.Join(loss.Streams, ", "), "error", loss.Err)
	}
	ro := rpc.Options{
		TLS: p.tls, Policy: p.policy, Insecure: p.f.insecure, Advertise: p.f.advertise, Version: p.a.Version,
		MaxFrameBytes: message.Limits{MaxBody: int(p.f.maxBody)}.WithDefaults().MaxFrameBytes, Logger: p.a.Log,
	}
	link, err := p.openBroker(ctx, listeners, &ro)
	if err != nil {
		return flagged(err)
	}
	p.server, err = rpc.NewServer(link, ro)
	if err != nil {
		return err
	}
	p.state.set("", p.broker, p.server)
	p.state.share(p.node)
	for _, l := range listeners {
		p.a.Log.Info("listening", "address", address(l), "tls", p.tls != nil, "journal", journals.Redacted(p.f.journal))
		p.wg.Go(func() {
			if err := p.server.Serve(l); !errors.Is(err, holdfast.ErrClosed) {
				p.fail(err)
			}
		})
	}
	listeners = nil // the server's, from now on
	return nil
}

// flagged names the flag whose value a broker does not take.
func flagged(err error) error {
	var field *message.FieldError
	if !errors.As(err, &field) {
		return err
	}
	return cli.Flagged(err, map[string]string{
		"MaxBody": "max-body", "OpenLimit": "open-limit", "CacheBytes": "cache", "SendBudget": "send-budget", "Heartbeat": "heartbeat", "Expiry": "expiry"})
}

// listen opens the listeners before the journal: if the address is taken, the journal is most likely in use too, and this is
// the clearer message. Clients that connect are answered once the broker is open.
func (p *process) listen(ctx context.Context) (all []net.Listener, err error) {
	for _, text := range p.f.listen {
		l, err := rpc.Listen(ctx, text)
		if err == nil {
			all = append(all, l)
			err = cli.Usage(rpc.MayServe(l.Addr(), p.f.insecure || p.tls != nil && p.policy != nil))
		}
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, err
		}
	}
	return all, nil
}

// name is what the broker is called: its advertised address, or the first one that it listens on.
func (p *process) name(listeners []net.Listener) string {
	if p.f.advertise != "" {
		return p.f.advertise
	}
	return address(listeners[0])
}

func address(l net.Listener) string {
	if a, ok := l.Addr().(*net.UnixAddr); ok {
		return "unix:" + a.Name
	}
	return l.Addr().String()
}

func (f *flags) loadPolicy() (*access.Policy, error) {
	if f.policy == "" {
		return nil, nil
	}
	return access.Load(f.policy)
}

// announceReady says in the log when all queues are recovered.
func (p *process) announceReady(ctx context.Context, began time.Time) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		if ok, text := p.state.ready(); ok {
			p.a.Log.Info("broker ready", "queues", text, "after", time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// wait waits for the end, and reads certificates and policy anew when it is told to.
func (p *process) wait(ctx context.Context) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case <-ctx.Done():
			p.a.Log.Info("broker stops", "reason", context.Cause(ctx).Error())
			return nil
		case err := <-p.failed:
			return err
		case <-reload:
			p.reload()
		}
	}
}

func (p *process) reload() {
	var errs []error
	if p.certs != nil {
		errs = append(errs, p.certs.load())
	}
	policy, err := p.f.loadPolicy()
	if err == nil && policy != nil {
		err = p.server.SetPolicy(policy)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		p.a.Log.Error("certificates and token file are not changed", "error", err)
		return
	}
	p.a.Log.Info("certificates and token file read again")
}

// stop ends everything that was opened. Streams end with the broker, and with them the connections.
func (p *process) stop(ctx context.Context) error {
	ctx, cancel := p.a.Finish(ctx, time.Duration(p.f.patience))
	defer cancel()
	p.state.set("stopping", p.broker, p.server)
	if p.node != nil {
		p.node.Leave(ctx) // while clients can still be told where to go
	}
	var errs []error
	shutdown := make(chan error, 1)
	if p.server != nil {
		p.wg.Go(func() { shutdown <- p.server.Shutdown(ctx) })
	} else {
		shutdown <- nil
	}
	switch {
	case p.node != nil:
		errs = append(errs, p.node.Close(ctx))
	case p.broker != nil:
		errs = append(errs, p.broker.Close(ctx))
	}
	errs = append(errs, <-shutdown)
	p.state.set("stopped", nil, nil)
	if p.journal != nil {
		errs = append(errs, p.journal.Close())
	}
	return errors.Join(errs...)
}
