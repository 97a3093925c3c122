package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is a journal on one JetStream stream: a journal.Journal, journal.Importer and journal.Coordinator.
type Journal struct {
	c        *client
	opts     Options
	names    names
	limits   journal.Limits
	replicas int

	confirms atomic.Uint64 // how many were published
	light    atomic.Bool   // the ballast was dropped

	mu      sync.Mutex
	closed  bool
	calls   map[*context.CancelCauseFunc]struct{}
	running sync.WaitGroup    // cleaners
	members map[string]uint64 // the last message of each member that this handle has put
}

var (
	_ journal.Journal     = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
	_ journal.Coordinator = (*Journal)(nil)
)

// begin makes a call known, so that Close ends it. Its context ends with ctx and with the journal; end is to be called with the
// call's error, and returns the one for the caller.
func (j *Journal) begin(ctx context.Context) (_ context.Context, end func(error) error, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	cctx, cancel := context.WithCancelCause(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		cancel(nil)
		return nil, nil, journal.ErrClosed
	}
	j.calls[&cancel] = struct{}{}
	return cctx, func(err error) error {
		if err != nil && errors.Is(context.Cause(cctx), journal.ErrClosed) {
			err = fmt.Errorf("%w during the call: %s", journal.ErrClosed, err.Error())
		}
		j.mu.Lock()
		delete(j.calls, &cancel)
		j.mu.Unlock()
		cancel(nil)
		return err
	}, nil
}

// call is begin and end around f.
func (j *Journal) call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end, err := j.begin(ctx)
	if err != nil {
		return err
	}
	return end(f(ctx))
}

// Close ends all use of the handle.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	for cancel := range j.calls {
		(*cancel)(journal.ErrClosed)
	}
	j.mu.Unlock()
	j.running.Wait()
	j.c.nc.Close()
	return nil
}

// Limits returns what fits into one message of the server, less what the driver adds.
func (j *Journal) Limits() journal.Limits { return j.limits }

// write publishes with the hook around it.
func (j *Journal) write(ctx context.Context, op, stream string, msgs ...message) (uint64, error) {
	var seq uint64
	err := j.hooked(ctx, op, stream, func() (err error) {
		seq, err = j.c.publish(ctx, msgs...)
		return err
	})
	return seq, err
}

// hooked calls f, which writes, with the hook around it.
func (j *Journal) hooked(ctx context.Context, op, stream string, f func() error) error {
	if j.opts.hook == nil {
		return f()
	}
	if err := j.opts.hook(ctx, op, stream, false); err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	err := f()
	if err2 := j.opts.hook(ctx, op, stream, true); err2 != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err2)
	}
	return err
}

// unknown makes errors of which nothing is known for sure say so.
func unknown(err error) error {
	switch {
	case err == nil, errors.Is(err, journal.ErrUnknown):
		return err
	case errors.Is(err, errNoAnswer), errors.Is(err, errBusy), errors.Is(err, errMismatch):
		return fmt.Errorf("%w: %w", journal.ErrUnknown, err)
	}
	return err
}

// confirm makes later reads linearizable: it returns the sequence number of a message that was stored after confirm was called, through
// the stream's Raft group. A server that has this message has all that was acknowledged before. With one replica
// it does nothing.
func (j *Journal) confirm(ctx context.Context) (uint64, error) {
	if j.replicas == 1 {
		return 0, nil
	}
	var err error
	for n := range 4 {
		if n > 0 && !pause(ctx, 50*time.Millisecond) {
			break
		}
		var seq uint64
		if seq, err = j.c.publish(ctx, message{subject: j.names.confirm()}); err == nil {
			if j.confirms.Add(1)%64 == 0 {
				_ = j.c.purge(ctx, j.names.confirm(), seq) // the next one will
			}
			return seq, nil
		}
		if ctx.Err() != nil || errors.Is(err, journal.ErrFull) {
			break
		}
	}
	return 0, fmt.Errorf("confirm a read: %w", err)
}

// last reads the last message of each subject or filter, from a server that has message at, if at is not 0.
func (j *Journal) last(ctx context.Context, at uint64, subjects ...string) ([]stored, error) {
	ask := subjects
	if at > 0 {
		ask = append(slices.Clone(subjects), j.names.confirm())
	}
	var err error
	for n, wait := 0, time.Millisecond; n < 60; n++ {
		if n > 0 && !pause(ctx, wait) {
			break
		}
		wait = min(2*wait, 100*time.Millisecond)
		var got []stored
		fresh := at == 0
		err = j.c.fetchLast(ctx, ask, func(m stored) bool {
			if m.subject == j.names.confirm() {
				fresh = fresh || m.seq >= at
				return true
			}
			got = append(got, m)
			return true
		})
		if err == nil && fresh {
			return got, nil
		}
		if err != nil && (n >= 3 && !errors.Is(err, errBrokenOff) || ctx.Err() != nil) {
			break
		}
	}
	if err == nil {
		err = fmt.Errorf("%w from a server that is up to date", errNoAnswer)
	}
	return nil, err
}

// head is what is known of a stream at one moment. A stream that never was has no ctl.
type head struct {
	ctl *control
	seq uint64 // of the control message
	tip tip
	uid journal.UID
	low uint64 // Info.Low
	// broken says that the last message of the record subject cannot be read; tip has its number alone.
	broken error
}

// info returns what the contract calls it.
func (h *head) info(name string) journal.Info {
	if h.ctl == nil {
		return journal.Info{Name: name, Low: 1}
	}
	return journal.Info{
		Name: name, UID: h.uid, Epoch: h.ctl.Epoch, Dropped: h.ctl.Dropped,
		End: h.tip.end, EndCRC: h.tip.crc, EndTime: h.tip.time, Low: h.low,
	}
}

// head reads a stream's state; linear: as it is after the call began.
func (j *Journal) head(ctx context.Context, name string, linear bool) (*head, error) {
	for n := 0; ; n++ {
		var at uint64
		if linear {
			var err error
			if at, err = j.confirm(ctx); err != nil {
				return nil, err
			}
		}
		cm, rm, err := j.headMessages(ctx, at, name)
		if err != nil {
			return nil, err
		}
		h, err := parseHead(name, cm, rm)
		if err != nil {
			return nil, err
		}
		// Control state and mark are stored in one step. One of a lower epoch than the other was read too early.
		if h.ctl != nil && h.tip.epoch > h.ctl.Epoch && n < 5 {
			if !pause(ctx, 5*time.Millisecond) {
				return nil, ctx.Err()
			}
			continue
		}
		return h, nil
	}
}

// headMessages reads the last control message and the last message of the record subject.
func (j *Journal) headMessages(ctx context.Context, at uint64, name string) (cm, rm *stored, err error) {
	if at == 0 {
		if cm, err = j.c.get(ctx, getRequest{Last: j.names.control(name)}); err == nil {
			rm, err = j.c.get(ctx, getRequest{Last: j.names.records(name)})
		}
		return cm, rm, err
	}
	got, err := j.last(ctx, at, j.names.control(name), j.names.records(name))
	for i := range got {
		if got[i].subject == j.names.control(name) {
			cm = &got[i]
		} else {
			rm = &got[i]
		}
	}
	return cm, rm, err
}

func parseHead(name string, cm, rm *stored) (*head, error) {
	h := &head{}
	if rm != nil {
		var err error
		if h.tip, err = parseTip(rm); err != nil {
			h.tip, h.broken = tip{seq: rm.seq}, fmt.Errorf("last record: %w", err)
			if !errors.Is(err, journal.ErrNewerFormat) {
				h.broken = &journal.CorruptError{Stream: name, What: "its last record", Err: err}
			}
		}
	}
	if cm == nil {
		if h.tip.rec != nil {
			return nil, &journal.CorruptError{Stream: name, What: "its control state is missing"}
		}
		return h, nil
	}
	ctl := &control{}
	if err := decode(fmt.Sprintf("control state of stream %q", name), cm.data, ctl, &ctl.Version); err != nil {
		return nil, err
	}
	ctl.at(cm.seq)
	uid, err := journal.ParseUID(ctl.UID)
	if err != nil {
		return nil, &journal.CorruptError{Stream: name, What: "control state", Err: err}
	}
	if h.tip.end < ctl.End && h.broken == nil {
		return nil, &journal.CorruptError{Stream: name, Seq: h.tip.end + 1, What: fmt.Sprintf("it ends at seq %d, and ended at %d before", h.tip.end, ctl.End)}
	}
	h.ctl, h.seq, h.uid = ctl, cm.seq, uid
	h.low = min(ctl.Low, h.tip.end+1)
	if h.broken != nil {
		h.low = ctl.Low
	}
	if ctl.Dropped {
		h.low = h.tip.end + 1
	}
	return h, nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.call(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, fmt.Errorf("open stream %q: %w", name, err)
	}
	return &reader{j: j, name: name}, nil
}

// Streams lists the streams by name.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		var infos []journal.Info
		err := j.call(ctx, func(ctx context.Context) error {
			subjects, err := j.c.subjects(ctx, j.names.controls())
			if err != nil {
				return err
			}
			for subject := range subjects {
				name, err := lastToken(subject)
				if err != nil {
					return fmt.Errorf("subject %s: %w", subject, err)
				}
				h, err := j.head(ctx, name, false)
				if err == nil {
					err = h.broken
				}
				if err != nil {
					return fmt.Errorf("stream %q: %w", name, err)
				}
				infos = append(infos, h.info(name))
			}
			return nil
		})
		if err != nil {
			yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
			return
		}
		slices.SortFunc(infos, func(a, b journal.Info) int {
			if a.Name < b.Name {
				return -1
			}
			return 1
		})
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}
