package mongodb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// §4: the contract.
func TestConformance(t *testing.T) {
	journaltest.Run(t, journaltest.Config{
		NewStore: newStore,
		Shared:   true, Persistent: true, Hooks: true, Damages: true, Coordinates: true, Imports: true,
		Records: 40, Takeovers: 20, Timeout: 3 * time.Minute, Parallel: true,
	})
}

func newStore(t testing.TB) journaltest.Store {
	opts := quiet()
	url := newURL(t, server, "")
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

// damage changes a record's document.
func damage(ctx context.Context, j *Journal, d journaltest.Damage) error {
	var doc recordDoc
	found, err := j.findOne(ctx, j.records, bson.D{{Key: "s", Value: d.Stream}, {Key: "f", Value: int64(d.Seq)}}, &doc)
	if err != nil || !found {
		return fmt.Errorf("damage: no record at seq %d: %w", d.Seq, err)
	}
	id := bson.D{{Key: "_id", Value: doc.ID}}
	switch d.Kind {
	case journaltest.FlipHeader:
		doc.Header[20] ^= 0x80
	case journaltest.FlipMeta:
		doc.Meta[0] ^= 0x80
	case journaltest.FlipBody:
		doc.Body[0] ^= 0x80
	case journaltest.NewerVersion:
		doc.Header[0] = 100
	case journaltest.Remove:
		h, err := j.head(ctx, d.Stream, false)
		if err != nil {
			return err
		}
		if h.tip.pos == doc.Pos {
			return errors.ErrUnsupported // the newest document is the stream's head: without it the stream ends before, and nothing tells
		}
		_, err = j.records.DeleteOne(ctx, id)
		return err
	}
	_, err = j.records.ReplaceOne(ctx, id, doc)
	return err
}
