package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitPeer is a quorum queue of one node: what is confirmed is in its log, synced.
func rabbitPeer() *peer {
	return &peer{
		name: "rabbitmq-quorum", about: "quorum queue of one node, publisher confirms; prefetch 1,000, each message acknowledged, not confirmed", synced: true,
		start: startRabbit, warm: warmJIT,
		version: func(ctx context.Context, _ *env) string {
			return "RabbitMQ " + said(ctx, "dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server")
		},
		connect: func(_ context.Context, addr string) (conn, error) {
			c, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
			if err != nil {
				return nil, err
			}
			return &rabbit{c}, nil
		},
	}
}

func startRabbit(ctx context.Context, e *env, dir string) (*server, error) {
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	for _, file := range []struct{ name, text string }{{"rabbitmq.conf", "log.console.level = warning\n"}, {"enabled_plugins", "[].\n"}} {
		if err := os.WriteFile(filepath.Join(dir, file.name), []byte(file.text), 0o644); err != nil {
			return nil, fmt.Errorf("write RabbitMQ's configuration: %w", err)
		}
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s, err := e.serve(dir, addr, filepath.Join(e.root, "bench/peers/servers/rabbitmq/run"), dir, fmt.Sprint(ports[0]), fmt.Sprint(ports[1]), fmt.Sprint(ports[2]))
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, func(context.Context) error {
		c, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

type rabbit struct{ c *amqp.Connection }

func (r *rabbit) close() { _ = r.c.Close() } // there is nobody left to tell

func (r *rabbit) create(_ context.Context, queue string) error {
	ch, err := r.c.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	return errors.Join(err, ch.Close())
}

type rabbitSender struct {
	ch    *amqp.Channel
	queue string
	*inOrder
}

func (r *rabbit) sender(_ context.Context, queue string, window int) (sender, error) {
	ch, err := r.c.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &rabbitSender{ch, queue, newInOrder(window)}, nil
}

func (s *rabbitSender) send(ctx context.Context, body []byte, done func(error)) error {
	return s.inOrder.send(ctx, func() (func() error, error) {
		d, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, "", s.queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			return nil, err
		}
		return func() error {
			if ok, err := d.WaitContext(ctx); err != nil || !ok {
				return errors.Join(errors.New("not confirmed"), err)
			}
			return nil
		}, nil
	}, done)
}

func (r *rabbit) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	ch, err := r.c.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(1000, 0, false); err != nil {
		return err
	}
	messages, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for m := range messages {
		got(m.Body)
		if err := m.Ack(false); err != nil {
			return fmt.Errorf("acknowledge to RabbitMQ: %w", err)
		}
		done(1)
	}
	if ctx.Err() == nil {
		return errors.New("RabbitMQ has ended the consumer")
	}
	return nil
}
