package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natses are NATS JetStream with a sync before each answer, and as it comes.
func natses() (all []*peer) {
	for _, sync := range []string{"always", "default"} {
		all = append(all, &peer{
			name: "nats-" + sync, about: "JetStream work queue, one replica, sync_interval " + sync + "; each message acknowledged, not confirmed", synced: sync == "always",
			start: func(ctx context.Context, e *env, dir string) (*server, error) { return startNATS(ctx, e, dir, sync) },
			version: func(ctx context.Context, e *env) string {
				return said(ctx, filepath.Join(e.servers, "nats-server"), "--version")
			},
			connect: func(_ context.Context, addr string) (conn, error) {
				nc, err := nats.Connect("nats://" + addr)
				if err != nil {
					return nil, err
				}
				return &natsConn{nc: nc}, nil
			},
		})
	}
	return all
}

func startNATS(ctx context.Context, e *env, dir, sync string) (*server, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream {\n store_dir: %q\n", ports[0], filepath.Join(dir, "data"))
	if sync == "always" {
		config += " sync_interval: always\n"
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(config+"}\n"), 0o644); err != nil {
		return nil, fmt.Errorf("write the configuration of NATS: %w", err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s, err := e.serve(dir, addr, filepath.Join(e.servers, "nats-server"), "-c", file)
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, func(context.Context) error {
		nc, err := nats.Connect("nats://" + addr)
		if err == nil {
			nc.Close()
		}
		return err
	})
}

type natsConn struct{ nc *nats.Conn }

func (n *natsConn) close() { n.nc.Close() }

func (n *natsConn) create(ctx context.Context, queue string) error {
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: queue, Subjects: []string{queue}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage})
	if err != nil {
		return err
	}
	_, err = js.CreateConsumer(ctx, queue, jetstream.ConsumerConfig{Durable: queue, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 50_000})
	return err
}

type natsSender struct {
	js      jetstream.JetStream
	subject string
	*inOrder
}

func (n *natsConn) sender(_ context.Context, queue string, window int) (sender, error) {
	js, err := jetstream.New(n.nc, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		return nil, err
	}
	return &natsSender{js, queue, newInOrder(window)}, nil
}

func (s *natsSender) send(ctx context.Context, body []byte, done func(error)) error {
	return s.inOrder.send(ctx, func() (func() error, error) {
		// With the window full the client waits up to a time of its own and then fails.
		f, err := s.js.PublishAsync(s.subject, body, jetstream.WithStallWait(answerTime))
		if err != nil {
			return nil, err
		}
		return func() error {
			select {
			case <-f.Ok():
				return nil
			case err := <-f.Err():
				return err
			}
		}, nil
	}, done)
}

func (n *natsConn) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	c, err := js.Consumer(ctx, queue, queue)
	if err != nil {
		return err
	}
	it, err := c.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		m, err := it.Next()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				break
			}
			return fmt.Errorf("receive from NATS: %w", err)
		}
		got(m.Data())
		if err := m.Ack(); err != nil {
			return fmt.Errorf("acknowledge to NATS: %w", err)
		}
		done(1)
	}
	return n.nc.FlushTimeout(5 * time.Second)
}
