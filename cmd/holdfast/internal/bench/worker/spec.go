package worker

import (
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/queue"
)

// Kind is what a part of a worker does.
type Kind string

// The kinds of parts.
const (
	// Send sends to queues: at a rate, or as fast as it can.
	Send Kind = "send"
	// Receive receives from queues and acknowledges.
	Receive Kind = "receive"
	// BareServe is a bare log behind a listener, BareSend a client of it.
	BareServe Kind = "bare-serve"
	BareSend  Kind = "bare-send"
	// Deliver is a producer and a consumer of reliable delivery in one process; DeliverServe and DeliverSend are the two at the ends of a connection.
	Deliver      Kind = "deliver"
	DeliverServe Kind = "deliver-serve"
	DeliverSend  Kind = "deliver-send"
)

// Spec says what a worker does.
type Spec struct {
	// Embedded is the URL of a journal on which the worker has a broker of its own; empty for a connection to a broker.
	Embedded string `json:"embedded,omitempty"`
	// Parts are done at the same time.
	Parts []Part `json:"parts"`
	// Profile is the file for a profile of the worker's processor time, empty for none.
	Profile string `json:"profile,omitempty"`
}

// Part is one thing that a worker does. Times are counted from the common beginning of all parts.
type Part struct {
	Kind Kind `json:"kind"`
	// Queue is the beginning of the names of the queues, Queues how many there are.
	Queue  string `json:"queue,omitempty"`
	Queues int    `json:"queues,omitempty"`
	// Addr is where a bare log or a consumer is.
	Addr string `json:"addr,omitempty"`
	// Network is what the listener of a bare log or a consumer is on, tcp or unix; Dir is for its files, Sockets for its socket.
	Network string `json:"network,omitempty"`
	Dir     string `json:"dir,omitempty"`
	Sockets string `json:"sockets,omitempty"`
	// Payload is the size of bodies in bytes.
	Payload int `json:"payload,omitempty"`
	// Window is how many messages may be unanswered, for each queue.
	Window int `json:"window,omitempty"`
	// Blocking sends by so many callers as the window has messages, each of whom waits for the answer.
	Blocking bool `json:"blocking,omitempty"`
	// Rate is messages a second for each queue; 0: as fast as possible.
	Rate float64 `json:"rate,omitempty"`
	// Messages ends the part after so many in all; 0: it ends after Warmup and Duration.
	Messages int64 `json:"messages,omitempty"`
	// Warmup is not measured, Duration is.
	Warmup   time.Duration `json:"warmup,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`
	// Workers are handlers that run at once, for each queue; 0: the default of Consume.
	Workers int `json:"workers,omitempty"`
	// StuckEvery lets the handler of each message whose number is a multiple of it fail, to come again after ten hours; 0: none.
	StuckEvery int64 `json:"stuck_every,omitempty"`
	// UntilStopped goes on until the worker is told to stop; only Duration is measured.
	UntilStopped bool `json:"until_stopped,omitempty"`
}

// QueueName returns the name of a part's queue.
func (p Part) QueueName(i int) string { return fmt.Sprintf("%s-%d", p.Queue, i) }

// Result is what a part has measured.
type Result struct {
	Kind Kind `json:"kind"`
	// Total are all messages that are done.
	Total int64 `json:"total"`
	// Measured are those that were done in the time that is measured, and Took is that time.
	Measured int64         `json:"measured"`
	Took     time.Duration `json:"took"`
	// First and Last are when the first and the last message were done.
	First time.Duration `json:"first"`
	Last  time.Duration `json:"last"`
	// Answer is the time from a message's send to its acknowledgement to the sender, EndToEnd that to its handler, Late is how
	// late a sender at a rate was.
	Answer   *measure.Histogram `json:"answer,omitempty"`
	EndToEnd *measure.Histogram `json:"end_to_end,omitempty"`
	Late     *measure.Histogram `json:"late,omitempty"`
	// CPU is processor time of the worker, and Mallocs its allocations, in the time that is measured.
	CPU     time.Duration `json:"cpu"`
	Mallocs uint64        `json:"mallocs,omitempty"`
	// Frames are the frames that were sent.
	Frames uint64 `json:"frames,omitempty"`
}

// Rate returns messages a second in the time that was measured.
func (r Result) Rate() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Measured) / r.Took.Seconds()
}

// said is one line of what a worker says.
type said struct {
	Ready    *ready   `json:"ready,omitempty"`
	Progress *int64   `json:"progress,omitempty"`
	Result   []Result `json:"result,omitempty"`
}

type ready struct {
	// Addr is where the worker listens, if it does.
	Addr string `json:"addr,omitempty"`
}

// Config returns the configuration of a benchmark's queues.
func Config(durability string) queue.Config {
	return queue.Config{Durability: queue.Durability(durability)}
}
