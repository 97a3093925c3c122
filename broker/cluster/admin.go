package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// admin carries calls out here or passes them on to the broker that has the queue.
type admin struct{ n *Node }

// on calls f with the administration of the broker that has the queue of which f's error tells.
func (a admin) on(ctx context.Context, f func(holdfast.Admin) error) error {
	err := f(a.n.b.Admin())
	if link := a.n.elsewhere(ctx, &err); link != nil {
		err = f(link.Admin())
		var moved *holdfast.MovedError
		if errors.As(err, &moved) {
			// Two brokers that do not agree yet. Whoever asked comes again.
			err = &unsettled{err}
		}
	}
	return err
}

// unsettled is an error that a broker met that was passed a call.
type unsettled struct{ err error }

func (e *unsettled) Error() string { return e.err.Error() }
func (e *unsettled) Unwrap() error { return holdfast.ErrUnavailable }

// Create implements holdfast.Admin.
func (a admin) Create(ctx context.Context, name string, cfg queue.Config) error {
	return a.on(ctx, func(to holdfast.Admin) error { return to.Create(ctx, name, cfg) })
}

// Describe implements holdfast.Admin.
func (a admin) Describe(ctx context.Context, name string) (info holdfast.QueueInfo, err error) {
	err = a.on(ctx, func(to holdfast.Admin) (err error) { info, err = to.Describe(ctx, name); return err })
	return info, err
}

// Configure implements holdfast.Admin.
func (a admin) Configure(ctx context.Context, name string, cfg queue.Config) error {
	return a.on(ctx, func(to holdfast.Admin) error { return to.Configure(ctx, name, cfg) })
}

// Pause implements holdfast.Admin.
func (a admin) Pause(ctx context.Context, name string, paused bool) error {
	return a.on(ctx, func(to holdfast.Admin) error { return to.Pause(ctx, name, paused) })
}

// Purge implements holdfast.Admin.
func (a admin) Purge(ctx context.Context, name string) (n uint64, err error) {
	err = a.on(ctx, func(to holdfast.Admin) (err error) { n, err = to.Purge(ctx, name); return err })
	return n, err
}

// Delete implements holdfast.Admin.
func (a admin) Delete(ctx context.Context, name string) error {
	return a.on(ctx, func(to holdfast.Admin) error { return to.Delete(ctx, name) })
}

// Peek implements holdfast.Admin.
func (a admin) Peek(ctx context.Context, name string, o holdfast.PeekOptions) (out []holdfast.PeekedMessage, err error) {
	err = a.on(ctx, func(to holdfast.Admin) (err error) { out, err = to.Peek(ctx, name, o); return err })
	return out, err
}

// Redrive implements holdfast.Admin.
func (a admin) Redrive(ctx context.Context, name, target string, limit int) (n uint64, err error) {
	err = a.on(ctx, func(to holdfast.Admin) (err error) { n, err = to.Redrive(ctx, name, target, limit); return err })
	return n, err
}

// Settle implements holdfast.Admin.
func (a admin) Settle(ctx context.Context, name string, op holdfast.SettleOp, receipts []holdfast.Receipt, d time.Duration) (out []queue.Outcome, err error) {
	err = a.on(ctx, func(to holdfast.Admin) (err error) { out, err = to.Settle(ctx, name, op, receipts, d); return err })
	return out, err
}

// listPatience bounds how long another broker may take to list its queues.
const listPatience = 2 * time.Second

// List implements holdfast.Admin: what each broker says of its own queues, and of the others their names and who is to have them.
func (a admin) List(ctx context.Context) ([]holdfast.QueueInfo, error) {
	own, err := a.n.b.Admin().List(ctx)
	if err != nil {
		return own, err
	}
	names, err := a.n.b.Names(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]holdfast.QueueInfo{}
	for _, q := range own {
		all[q.Name] = q
	}
	missing := map[string]bool{} // addresses
	a.n.mu.Lock()
	for _, name := range names {
		if _, ok := all[name]; !ok {
			p := a.n.table.Place(name)
			all[name] = holdfast.QueueInfo{Name: name, Owner: p.Address}
			if !p.Self && p.ID != "" {
				missing[p.Address] = true
			}
		}
	}
	a.n.mu.Unlock()
	var mu sync.Mutex
	var work sync.WaitGroup
	for address := range missing {
		work.Go(func() {
			limited, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			link, err := a.n.peer(ctx, address)
			var list []holdfast.QueueInfo
			if err == nil {
				list, err = link.Admin().List(limited)
			}
			mu.Lock()
			defer mu.Unlock()
			for name, q := range all {
				if q.Owner == address && !q.Ready && err != nil {
					q.Error = "broker " + address + " does not answer: " + err.Error()
					all[name] = q
				}
			}
			for _, q := range list {
				if have, ok := all[q.Name]; ok && !have.Ready {
					all[q.Name] = q
				}
			}
		})
	}
	work.Wait()
	return slices.SortedFunc(maps.Values(all), func(a, b holdfast.QueueInfo) int { return strings.Compare(a.Name, b.Name) }), nil
}
