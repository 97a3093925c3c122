package bench

import (
	"context"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
)

// The names of what is measured of reliable delivery.
const (
	inProcess = "in one process"
	connected = "over a connection"
)

// deliver is "bench delivery": a producer and a consumer of reliable delivery, each message confirmed, in one process and then at the
// ends of a connection.
func deliver(ctx context.Context, b *bench, _ string) (*measure.Run, error) {
	r := &measure.Run{}
	part := worker.Part{Kind: worker.Deliver, Payload: int(b.o.payload), Window: b.o.window, Warmup: time.Duration(b.o.warmup), Duration: time.Duration(b.o.duration)}
	in, err := b.deliveries(ctx, inProcess, part)
	if err != nil {
		return nil, err
	}
	addDelivery(r, inProcess, in)
	part.Kind, part.Network, part.Sockets = worker.DeliverSend, b.o.network.Value, b.o.sockets
	over, err := b.deliveries(ctx, connected, part)
	if err != nil {
		return nil, err
	}
	addDelivery(r, connected, over)
	r.Series = append(in.series(), over.series()...)
	return r, nil
}

// deliveries runs a producer, and its consumer if that is elsewhere.
func (b *bench) deliveries(ctx context.Context, name string, p worker.Part) (*crew, error) {
	c := &crew{b: b, warmup: p.Warmup, length: p.Duration}
	defer c.kill()
	if p.Kind == worker.DeliverSend {
		consumer := p
		consumer.Kind, consumer.UntilStopped = worker.DeliverServe, true
		addr, err := c.add(ctx, "", worker.Spec{Parts: []worker.Part{consumer}})
		if err != nil {
			return nil, err
		}
		p.Addr = addr
	}
	if _, err := c.add(ctx, name, worker.Spec{Parts: []worker.Part{p}}); err != nil {
		return nil, err
	}
	return c, c.run(ctx, name)
}

func addDelivery(r *measure.Run, name string, c *crew) {
	all := c.results(worker.Deliver, "")
	all = append(all, c.results(worker.DeliverSend, "")...)
	n := float64(all[0].Measured)
	r.Add(name+", confirmed", "msg/s", all[0].Rate())
	r.Add(name+", time a message", "ns", float64(all[0].Took)/n)
	r.Add(name+", producer's process, allocations a message", "", float64(all[0].Mallocs)/n)
	r.Add(name+", producer's process, processor time a message", "ns", float64(all[0].CPU)/n)
}
