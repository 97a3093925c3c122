package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// §4: the contract, on a stream with one replica and on one with three.
func TestConformance(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
			journaltest.Run(t, journaltest.Config{
				NewStore: func(t testing.TB) journaltest.Store { return newStore(t, server, replicas) },
				Shared:   true, Persistent: true, Hooks: true, Damages: true, Coordinates: true, Imports: true,
				Records: 60, Takeovers: 40, Timeout: 2 * time.Minute, Parallel: true,
			})
		})
	}
}

func newStore(t testing.TB, s *testserver.Server, replicas int) journaltest.Store {
	opts := quiet()
	url := streamURL(s, newStream(t, s), fmt.Sprintf("sync=always&replicas=%d", replicas))
	return journaltest.Store{
		Open:    func(ctx context.Context) (journal.Journal, error) { return Open(ctx, url, opts) },
		SetHook: func(h journaltest.Hook) { opts.hook = h },
		Damage: func(ctx context.Context, d journaltest.Damage) error {
			j, err := Open(ctx, url, quiet())
			if err != nil {
				return err
			}
			defer j.Close() //nolint:errcheck // it only carries the damage
			return damage(ctx, j, d)
		},
	}
}

// allRecords reads a stream's records from a server that has the last of them: with replicas, one may answer that lags behind.
func allRecords(ctx context.Context, j *Journal, records string) (msgs []stored, err error) {
	for {
		msgs = nil
		if _, err := j.c.fetch(ctx, getRequest{Next: records, Seq: 1, Batch: 1000}, func(m stored) bool {
			m.data = bytes.Clone(m.data)
			msgs = append(msgs, m)
			return true
		}); err != nil {
			return nil, err
		}
		last, err := j.c.get(ctx, getRequest{Last: records})
		if err != nil {
			return nil, err
		}
		if last != nil && len(msgs) > 0 && msgs[len(msgs)-1].seq == last.seq {
			return msgs, nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("read the records of %s from a server that has all: %w", records, ctx.Err())
		}
	}
}

// damage publishes a stream's records, or a body, anew with one of them changed: messages cannot be changed in place.
func damage(ctx context.Context, j *Journal, d journaltest.Damage) error {
	records := j.names.records(d.Stream)
	msgs, err := allRecords(ctx, j, records)
	if err != nil {
		return err
	}
	flip := func(m *stored, at int) {
		if at < len(m.data) {
			m.data[at] ^= 0x80
		}
	}
	bad := -1
	for i := range msgs {
		if h, err := journal.ParseHeader(msgs[i].data); err == nil && h.First == d.Seq {
			bad = i
		}
	}
	if bad < 0 {
		return fmt.Errorf("damage: no record at seq %d", d.Seq)
	}
	h, err := journal.ParseHeader(msgs[bad].data)
	if err != nil {
		return err
	}
	body, err := j.c.get(ctx, getRequest{Last: j.names.bodyAt(d.Stream, d.Seq)})
	for err == nil && body == nil && h.BodyLen > 0 && pause(ctx, 20*time.Millisecond) { // the server that answers lags behind
		body, err = j.c.get(ctx, getRequest{Last: j.names.bodyAt(d.Stream, d.Seq)})
	}
	if err != nil {
		return err
	}
	at := map[journaltest.DamageKind]int{journaltest.FlipHeader: 20, journaltest.NewerVersion: 0, journaltest.FlipBody: journal.HeaderSize}
	switch d.Kind {
	case journaltest.FlipMeta:
		flip(&msgs[bad], journal.HeaderSize)
	case journaltest.Remove:
		if bad == len(msgs)-1 {
			return errors.ErrUnsupported // the newest message is the stream's head: without it the stream ends before, and nothing tells
		}
		msgs = append(msgs[:bad], msgs[bad+1:]...)
	case journaltest.NewerVersion:
		msgs[bad].data[0] = 100
	case journaltest.FlipHeader:
		flip(&msgs[bad], at[d.Kind])
	}
	if d.Kind != journaltest.FlipMeta && d.Kind != journaltest.Remove && body != nil {
		if body.data = bytes.Clone(body.data); d.Kind == journaltest.NewerVersion {
			body.data[0] = 100
		} else {
			flip(body, at[d.Kind])
		}
		if _, err := j.c.publish(ctx, message{subject: body.subject, data: [][]byte{body.data}, rollup: true}); err != nil {
			return err
		}
	}
	if d.Kind == journaltest.FlipBody {
		return nil
	}
	seq := uint64(0)
	for _, m := range msgs {
		s, err := j.c.publish(ctx, message{subject: records, data: [][]byte{m.data}})
		if err != nil {
			return err
		}
		if seq == 0 {
			seq = s
		}
	}
	return j.c.purge(ctx, records, seq)
}
