package receive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

const (
	// printBatch is how many messages are asked for, written and acknowledged at once.
	printBatch = 1024
	// ackBatches is how many such batches may wait for the answer to their acknowledgement.
	ackBatches = 8
)

// print writes messages as they come, and acknowledges them when they are written.
func (j *job) print(receiving context.Context, end context.CancelCauseFunc) {
	out := bufio.NewWriterSize(j.a.Out, 64<<10)
	var acks sync.WaitGroup
	slots := make(chan struct{}, ackBatches)
	stop := j.a.OutClosed(func(err error) {
		j.fail(fmt.Errorf("write messages: %w", err))
		end(err)
	})
	defer stop()
	for {
		ds := j.receive(receiving, printBatch)
		if len(ds) == 0 {
			break
		}
		j.idle.begin()
		written, err := j.write(out, ds)
		j.idle.finish()
		if err != nil {
			// What is not written for certain is given back.
			j.fail(fmt.Errorf("write messages: %w", err))
			end(err)
		}
		if j.f.noAck {
			continue
		}
		slots <- struct{}{}
		acks.Go(func() {
			defer func() { <-slots }()
			settling, cancel := j.a.Linger(receiving, settlePatience)
			defer cancel()
			if len(written) > 0 {
				j.ack(settling, written)
			}
			if len(written) < len(ds) {
				if err := j.r.Release(settling, ds[len(written):]...); err != nil {
					j.a.Log.Warn("messages could not be given back; they come again when their leases end", "error", err)
				}
			}
		})
	}
	acks.Wait()
}

// write writes messages and returns those that are written.
func (j *job) write(out *bufio.Writer, ds []*holdfast.Delivery) (written []*holdfast.Delivery, err error) {
	for _, d := range ds {
		if err := j.writeOne(out, d); err != nil {
			return nil, err
		}
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	return ds, nil
}

func (j *job) writeOne(out io.Writer, d *holdfast.Delivery) error {
	switch j.f.output.Value {
	case "json":
		return cli.WriteJSON(out, object(d, j.f.noAck))
	case "raw":
		_, err := out.Write(d.Body)
		return err
	}
	if j.f.noAck {
		if _, err := io.WriteString(out, d.Receipt().String()+"\t"); err != nil {
			return err
		}
	}
	if _, err := out.Write(d.Body); err != nil {
		return err
	}
	_, err := out.Write([]byte{'\n'})
	return err
}

// object is a message as JSON.
func object(d *holdfast.Delivery, receipt bool) cli.Object {
	o := cli.Object{{Name: "id", Value: d.ID.String()}, {Name: "queue", Value: d.Queue()}, {Name: "delivery", Value: d.Attempt}}
	if receipt {
		o = append(o, cli.Pair{Name: "receipt", Value: d.Receipt().String()})
	}
	o = append(o, cli.MessageObject(&d.Message)...)
	if hops := cli.Hops(d.Hops()); hops != nil {
		o = append(o, cli.Pair{Name: "hops", Value: hops})
	}
	return o
}

// ack acknowledges messages together. If that goes wrong, it finds out for each.
func (j *job) ack(ctx context.Context, ds []*holdfast.Delivery) {
	if err := j.r.Ack(ctx, ds...); err == nil || len(ds) == 1 {
		j.settled(int64(len(ds)), "message "+ds[0].ID.String(), err)
		return
	}
	for _, d := range ds {
		j.settled(1, "message "+d.ID.String(), d.Ack(ctx))
	}
}
