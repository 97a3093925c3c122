package mongodb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfastmq/holdfast/journal"
)

// G11: a journal that is opened for reading only reads everything, refuses every change, and makes no collection.
func TestReadOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	readOnly := quiet()
	readOnly.ReadOnly = true
	url := newURL(t, server, "")
	client, err := mongo.Connect(options.Client().ApplyURI(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	cfg, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, url, readOnly); !errors.Is(err, journal.ErrNotFound) || !strings.Contains(err.Error(), "holds no journal") {
		t.Errorf("a database without a journal: %v", err)
	}
	names, err := client.Database(cfg.database).ListCollectionNames(ctx, bson.D{})
	if err != nil || len(names) > 0 {
		t.Fatalf("opening for reading only has made %v (%v)", names, err)
	}
	writing := mustOpen(t, url, quiet())
	w := acquire(t, writing, "orders")
	for range 3 {
		if err := w.append(ctx, w.next(1, []byte("body"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.s.WritePart(ctx, "part", []byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := writing.Close(); err != nil { // so that its cleaner is at rest
		t.Fatal(err)
	}
	before := documents(ctx, t, client.Database(cfg.database))

	j := mustOpen(t, url, readOnly)
	wantHistory(t, j, "orders", w.acked)
	r, err := j.Open(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := r.ReadPart(ctx, "part"); err != nil || string(data) != "data" {
		t.Errorf("part: %q %v", data, err)
	}
	_, err = j.Acquire(ctx, "orders")
	_, err2 := j.Import(ctx, "orders", journal.Info{UID: w.s.Acquired().UID, Epoch: 9})
	for what, err := range map[string]error{"Acquire": err, "Import": err2, "PutMember": j.PutMember(ctx, "a", []byte("x")), "DeleteMember": j.DeleteMember(ctx, "a")} {
		if !errors.Is(err, ErrReadOnly) || errors.Is(err, journal.ErrUnknown) {
			t.Errorf("%s: %v, want %v", what, err, ErrReadOnly)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if after := documents(ctx, t, client.Database(cfg.database)); after != before {
		t.Errorf("the database had\n%s\nand has\n%s", before, after)
	}
}

// documents is all that a database holds, as text.
func documents(ctx context.Context, t *testing.T, db *mongo.Database) string {
	t.Helper()
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range []string{recordsName, controlName, partsName, membersName, confirmName, schemaName} {
		cur, err := db.Collection(name).Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.Raw
		if err := cur.All(ctx, &docs); err != nil {
			t.Fatal(err)
		}
		b.WriteString(name + "\n")
		for _, d := range docs {
			b.WriteString(d.String() + "\n")
		}
	}
	if len(names) == 0 {
		t.Error("the database is empty")
	}
	return b.String()
}
