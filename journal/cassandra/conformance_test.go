package cassandra

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// conformance is the suite's configuration, for a server of its own or a shared one.
func conformance(t testing.TB, url string) journaltest.Config {
	open(t, options(t, url)) // makes the tables
	tools := raw(t, options(t, url))
	return journaltest.Config{
		NewStore: func(t testing.TB) journaltest.Store {
			o := options(t, url)
			// Small buckets, so that every rule meets their edges, and both ways of storing a body.
			o.BucketRecords, o.InlineBytes = 3, 150
			var mu sync.Mutex
			return journaltest.Store{
				Open: func(ctx context.Context) (journal.Journal, error) {
					mu.Lock()
					defer mu.Unlock()
					return Open(ctx, o)
				},
				SetHook: func(h journaltest.Hook) {
					mu.Lock()
					defer mu.Unlock()
					o.hook = h
				},
				Damage: func(ctx context.Context, d journaltest.Damage) error {
					return damage(ctx, tools, o.prefix+d.Stream, d)
				},
			}
		},
		Shared: true, Persistent: true, Hooks: true, Damages: true, Coordinates: true, Imports: true,
		Records: 60, Takeovers: 30, Timeout: 2 * time.Minute, Parallel: true,
	}
}

// §4: the contract, on a real node.
func TestConformance(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, conformance(t, server.URL()))
}

// damage changes stored rows behind the journal's back.
func damage(ctx context.Context, s *gocql.Session, key string, d journaltest.Damage) error {
	at := row{}
	if err := s.Query(cqlBucketOf, key, int64(d.Seq-1)).MapScanContext(ctx, at); err != nil {
		return err
	}
	start, seq := at.int("start"), int64(d.Seq)
	// Far enough ahead of what the servers wrote.
	stamp := time.Now().Add(time.Hour).UnixMicro()
	if d.Kind == journaltest.Remove {
		for _, kind := range []int{kindMeta, kindBody} {
			if err := s.Query("DELETE FROM records USING TIMESTAMP ? WHERE stream = ? AND start = ? AND kind = ? AND seq = ?", stamp, key, start, kind, seq).ExecContext(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	for _, kind := range []int{kindMeta, kindBody} {
		var header, data []byte
		err := s.Query("SELECT header, data FROM records WHERE stream = ? AND start = ? AND kind = ? AND seq = ?", key, start, kind, seq).ScanContext(ctx, &header, &data)
		if err != nil {
			return fmt.Errorf("row of kind %d at seq %d: %w", kind, seq, err)
		}
		h, err := journal.ParseHeader(header)
		if err != nil {
			return err
		}
		header, data = slices.Clone(header), slices.Clone(data)
		switch {
		case d.Kind == journaltest.FlipHeader:
			header[30] ^= 4
		case d.Kind == journaltest.NewerVersion:
			header[0]++
		case d.Kind == journaltest.FlipMeta && kind == kindMeta:
			data[0] ^= 4
		case d.Kind == journaltest.FlipBody && kind == kindBody && len(data) > 0:
			data[len(data)/2] ^= 4
		case d.Kind == journaltest.FlipBody && kind == kindBody:
			return flipBig(ctx, s, key, start, stamp, &h)
		default:
			continue
		}
		err = s.Query("UPDATE records USING TIMESTAMP ? SET header = ? WHERE stream = ? AND start = ? AND kind = ? AND seq = ?", stamp, header, key, start, kind, seq).ExecContext(ctx)
		if err == nil && len(data) > 0 {
			err = s.Query("UPDATE records USING TIMESTAMP ? SET data = ? WHERE stream = ? AND start = ? AND kind = ? AND seq = ?", stamp, data, key, start, kind, seq).ExecContext(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func flipBig(ctx context.Context, s *gocql.Session, key string, start, stamp int64, h *journal.Header) error {
	var data []byte
	args := []any{key, start, int64(h.First), int64(h.Epoch), int64(h.CRC)}
	if err := s.Query(cqlBig, args...).ScanContext(ctx, &data); err != nil {
		return err
	}
	data = slices.Clone(data)
	data[0] ^= 1
	return s.Query("UPDATE bodies USING TIMESTAMP ? SET data = ? WHERE stream = ? AND start = ? AND seq = ? AND epoch = ? AND crc = ?",
		append([]any{stamp, data}, args...)...).ExecContext(ctx)
}
