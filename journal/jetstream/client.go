package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"

	"github.com/holdfastmq/holdfast/journal"
)

// errNoAnswer says that a request may or may not have reached the server.
var errNoAnswer = errors.New("no answer")

// errMismatch says that a publish's condition did not hold, or that another publish that would decide it is under way.
// Nothing was stored.
var errMismatch = errors.New("not the expected last message")

// errBusy says that the server refused for the moment. Nothing was stored.
var errBusy = errors.New("server busy")

// errBrokenOff says that an answer ended before its end: the server had found a message that was gone when it read it.
var errBrokenOff = errors.New("the answer broke off at a message that is gone")

// errMore says that the server has sent as much as it does at once, and has more.
var errMore = errors.New("there is more")

// client sends requests. Its methods may be called concurrently.
type client struct {
	nc      *nats.Conn
	js      njs.JetStream
	st      njs.Stream
	api     string // "$JS.API." or that of a domain
	stream  string
	timeout time.Duration
	log     *slog.Logger
	names   names

	mu     sync.Mutex
	tries  map[*context.CancelCauseFunc]struct{} // of requests that wait for an answer
	denied string                                // the last subject that the server denied
}

// errDisconnected ends requests whose answer can no longer come.
var errDisconnected = errors.New("connection lost")

// try returns a context for one request: it ends with ctx, after the timeout, and when the connection is lost.
func (c *client) try(ctx context.Context) (context.Context, func()) {
	ctx, cancelTimeout := context.WithTimeout(ctx, c.timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	c.tries[&cancel] = struct{}{}
	c.mu.Unlock()
	return ctx, func() {
		c.mu.Lock()
		delete(c.tries, &cancel)
		c.mu.Unlock()
		cancel(nil)
		cancelTimeout()
	}
}

// abort ends all requests under way.
func (c *client) abort(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cancel := range c.tries {
		(*cancel)(cause)
	}
}

// onError keeps what the server denied: a denied request is not answered.
func (c *client) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		c.log.Warn("journal: NATS", "err", err)
		return
	}
	c.mu.Lock()
	c.denied = err.Error()
	c.mu.Unlock()
	c.abort(&deniedError{err})
}

// deniedError is a right that the user lacks.
type deniedError struct{ err error }

func (e *deniedError) Error() string {
	return fmt.Sprintf("the server denies it: %v; give the user that right (docs/journals.md lists all that are needed)", e.err)
}
func (e *deniedError) Unwrap() error { return e.err }

// request sends a message and waits for one answer. While the server is away, or nobody answers for the stream, it is sent again
// until the timeout: then nothing was received. Any other error matches errNoAnswer, or the context's.
func (c *client) request(ctx context.Context, msgs ...*nats.Msg) (*nats.Msg, error) {
	tctx, done := c.try(ctx)
	defer done()
	last := msgs[len(msgs)-1]
	for {
		var answer *nats.Msg
		var err error
		for _, m := range msgs[:len(msgs)-1] {
			err = errors.Join(err, c.nc.PublishMsg(m))
		}
		if err == nil {
			answer, err = c.nc.RequestMsgWithContext(tctx, last)
		}
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrReconnectBufExceeded):
			if pause(tctx, 50*time.Millisecond) {
				continue
			}
			return nil, fmt.Errorf("%w within %v: %w (is the stream %s without a leader?)", errNoAnswer, c.timeout, err, c.stream)
		case tctx.Err() != nil:
			if cause := context.Cause(tctx); !errors.Is(cause, context.DeadlineExceeded) {
				return nil, fmt.Errorf("%w: %w", errNoAnswer, cause)
			}
			return nil, fmt.Errorf("%w within %v", errNoAnswer, c.timeout)
		default:
			return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
}

// pause waits for d, and tells whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// apiError is an error that the server answered.
type apiError struct {
	HTTP int    `json:"code"`
	Code int    `json:"err_code"`
	Text string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("NATS: %s (%d)", e.Text, e.Code) }

// Is maps what the server answers to what it means.
func (e *apiError) Is(target error) bool {
	switch e.Code {
	case 10071, 10164:
		return target == errMismatch
	case 10163, 10176, 10210, 10008, 10118, 10194: // not ready, batch incomplete, too many batches, no leader, offline
		return target == errBusy
	case 10002, 10023, 10028, 10047, 10077: // limits of account, server, memory, disk; max_bytes
		return target == journal.ErrFull
	case 10054, 10097:
		return target == journal.ErrTooLarge
	}
	return false
}

const tooManyBatches = 10210

// message is what is published: data in pieces, under the condition that the last message of cond is message last.
type message struct {
	subject string
	data    [][]byte
	cond    string // a subject, or "" for no condition
	last    uint64
	rollup  bool // deletes the older messages of the subject
}

const (
	hdrLast    = "Nats-Expected-Last-Subject-Sequence"
	hdrLastOf  = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrRollup  = "Nats-Rollup"
	hdrBatch   = "Nats-Batch-Id"
	hdrBatchNo = "Nats-Batch-Sequence"
	hdrCommit  = "Nats-Batch-Commit"
)

func (m *message) nats() *nats.Msg {
	n := nats.NewMsg(m.subject)
	size := 0
	for _, d := range m.data {
		size += len(d)
	}
	n.Data = make([]byte, 0, size)
	for _, d := range m.data {
		n.Data = append(n.Data, d...)
	}
	if m.cond != "" {
		n.Header[hdrLast] = []string{strconv.FormatUint(m.last, 10)}
		if m.cond != m.subject {
			n.Header[hdrLastOf] = []string{m.cond}
		}
	}
	if m.rollup {
		n.Header[hdrRollup] = []string{"sub"}
	}
	return n
}

// publish stores messages, all or none, and returns the sequence number of the last one; those before have the numbers
// before it. Errors match errMismatch, errBusy, journal.ErrFull or journal.ErrTooLarge: nothing was stored; or errNoAnswer.
func (c *client) publish(ctx context.Context, msgs ...message) (uint64, error) {
	out := make([]*nats.Msg, len(msgs))
	id := rand.Text()
	for i := range msgs {
		out[i] = msgs[i].nats()
		if len(msgs) == 1 {
			break
		}
		out[i].Header[hdrBatch] = []string{id}
		out[i].Header[hdrBatchNo] = []string{strconv.Itoa(i + 1)}
		if i == len(msgs)-1 {
			out[i].Header[hdrCommit] = []string{"1"}
		}
	}
	answer, err := c.request(ctx, out...)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w that can be read: %w", errNoAnswer, err)
	}
	switch {
	case ack.Error != nil:
		return 0, ack.Error
	case ack.Seq == 0:
		return 0, fmt.Errorf("%w with a sequence number: %q", errNoAnswer, answer.Data)
	}
	return ack.Seq, nil
}

// stored is a message as it was read.
type stored struct {
	subject string
	seq     uint64
	data    []byte
}

// getRequest is the body of a request for messages.
type getRequest struct {
	Seq      uint64   `json:"seq,omitempty"`
	Last     string   `json:"last_by_subj,omitempty"`
	Next     string   `json:"next_by_subj,omitempty"`
	Multi    []string `json:"multi_last,omitempty"`
	Batch    int      `json:"batch,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"`
}

// get asks the stream's leader for one message, and returns nil if there is none. A server that has just lost the leadership
// may answer with less than there is: see confirm.
func (c *client) get(ctx context.Context, r getRequest) (*stored, error) {
	var err error
	for n := range 3 {
		if n > 0 && !pause(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		m := nats.NewMsg(c.api + "STREAM.MSG.GET." + c.stream)
		m.Data = encode(r)
		var answer *nats.Msg
		if answer, err = c.request(ctx, m); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			continue // reading again changes nothing
		}
		var got struct {
			Error   *apiError `json:"error"`
			Message struct {
				Subject string `json:"subject"`
				Seq     uint64 `json:"seq"`
				Data    []byte `json:"data"`
			} `json:"message"`
		}
		if err = json.Unmarshal(answer.Data, &got); err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
		switch {
		case got.Error == nil:
			return &stored{got.Message.Subject, got.Message.Seq, got.Message.Data}, nil
		case got.Error.Code == 10037:
			return nil, nil
		case !errors.Is(got.Error, errBusy):
			return nil, got.Error
		}
		err = got.Error
	}
	return nil, err
}

// fetch asks any server that has the stream for many messages, and yields them in the order of their sequence numbers. Servers that
// lag behind send less than there is. yield must not keep data. It returns how many were sent. Of a request for the last messages of subjects, an error says
// that some are missing: it matches errMore or errBrokenOff.
func (c *client) fetch(ctx context.Context, r getRequest, yield func(stored) bool) (int, error) {
	tctx, done := c.try(ctx)
	defer done()
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(c.api+"DIRECT.GET."+c.stream, sub.Subject, encode(r)); err != nil {
		return 0, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	for n := 0; ; n++ {
		m, err := sub.NextMsgWithContext(tctx)
		if err != nil {
			if ctx.Err() != nil {
				return n, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
			if cause := context.Cause(tctx); cause != nil {
				err = cause
			}
			return n, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204":
			if left := m.Header.Get("Nats-Num-Pending"); len(r.Multi) > 0 && n > 0 && left != "" && left != "0" {
				return n, errMore
			}
			return n, nil
		case "404":
			if len(r.Multi) > 0 && m.Header.Get("Description") == "Message Not Found" {
				return n, errBrokenOff // if there is none, it says "No Results"
			}
			return n, nil
		default:
			return n, fmt.Errorf("read messages: NATS: %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return n, fmt.Errorf("read messages: sequence number: %w", err)
		}
		if !yield(stored{m.Header.Get("Nats-Subject"), seq, m.Data}) {
			return n, nil
		}
	}
}

// fetchLast is fetch for the last message of each subject or filter, however many bytes they are together.
func (c *client) fetchLast(ctx context.Context, subjects []string, yield func(stored) bool) error {
	r := getRequest{Multi: subjects, Batch: 1024}
	for {
		_, err := c.fetch(ctx, r, func(m stored) bool {
			r.Seq = m.seq + 1
			return yield(m)
		})
		if !errors.Is(err, errMore) {
			return err
		}
	}
}

// subjects lists the subjects of the stream's messages that match a filter, and how many messages each has.
func (c *client) subjects(ctx context.Context, filter string) (map[string]uint64, error) {
	return c.subjectsAt(ctx, filter, 0)
}

// subjectsAt is subjects, as known to a server that has message at.
func (c *client) subjectsAt(ctx context.Context, filter string, at uint64) (map[string]uint64, error) {
	var err error
	for n := range 5 {
		if n > 0 && !pause(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		var info *njs.StreamInfo
		tctx, done := c.try(ctx)
		info, err = c.st.Info(tctx, njs.WithSubjectFilter(filter))
		done()
		if err == nil && info.State.LastSeq >= at {
			return info.State.Subjects, nil
		}
		if err == nil {
			err = errors.New("the server that answered lags behind")
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%w: list %s: %w", errNoAnswer, filter, err)
}

// purge deletes the messages of a subject, or of a filter, that are older than before.
func (c *client) purge(ctx context.Context, subject string, before uint64) error {
	if before == 0 {
		return nil // which would mean all of them
	}
	tctx, done := c.try(ctx)
	defer done()
	if err := c.st.Purge(tctx, njs.WithPurgeSubject(subject), njs.WithPurgeSequence(before)); err != nil {
		return fmt.Errorf("delete messages of %s: %w", subject, err)
	}
	return nil
}

// deleteMessage deletes one message; one that is not there is no error. nats.go does not pass on the code of the server's error, so the request is
// made here.
func (c *client) deleteMessage(ctx context.Context, seq uint64) error {
	m := nats.NewMsg(c.api + "STREAM.MSG.DELETE." + c.stream)
	m.Data = encode(struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{seq, true})
	answer, err := c.request(ctx, m)
	if err != nil {
		return fmt.Errorf("delete message %d: %w", seq, err)
	}
	var got struct {
		Error *apiError `json:"error"`
	}
	switch err := json.Unmarshal(answer.Data, &got); {
	case err != nil:
		return fmt.Errorf("delete message %d: %w", seq, err)
	case got.Error == nil, got.Error.Code == 10043, got.Error.Code == 10057 && strings.Contains(got.Error.Text, "no message found"):
		return nil
	}
	return fmt.Errorf("delete message %d: %w", seq, got.Error)
}
