package main

import "context"

// inOrder passes the answers of sends on in the order of the sends, and keeps the window, for clients that give something to wait on for each send.
type inOrder struct {
	room    chan struct{}
	waiting chan unanswered
	ended   chan struct{}
}

type unanswered struct {
	wait func() error
	done func(error)
}

func newInOrder(window int) *inOrder {
	o := &inOrder{room: make(chan struct{}, window), waiting: make(chan unanswered, window), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for u := range o.waiting {
			u.done(u.wait())
			<-o.room
		}
	}()
	return o
}

// send waits for room, sends by start, which returns how to wait for the answer, and has done called once that is there.
func (o *inOrder) send(ctx context.Context, start func() (wait func() error, err error), done func(error)) error {
	select {
	case o.room <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	wait, err := start()
	if err != nil {
		<-o.room
		return err
	}
	o.waiting <- unanswered{wait, done}
	return nil
}

// flush waits for all answers; nothing can be sent any more.
func (o *inOrder) flush(ctx context.Context) error {
	close(o.waiting)
	select {
	case <-o.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
