package mongodb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfastmq/holdfast/journal"
)

// refused requires that opening a URL fails with an error that says want and matches is, and returns in time.
func refused(t *testing.T, url string, is error, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	j, err := Open(ctx, url, quiet())
	if err == nil {
		_ = j.Close()
		t.Errorf("%s: opened", url)
		return
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%s: %v, want %v", url, err, is)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s:\n%v\nwant it to say %q", url, err, w)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows a password: %v", err)
	}
}

// G1 and G11: a URL that is wrong, or asks for less than durable, is refused with what to change.
func TestURL(t *testing.T) {
	c, err := parseURL("mongodb://u:p%40ss@a,b:4333/orders?replicaSet=rs0&durable=declared&timeoutMS=3000&w=majority&journal=true")
	if err != nil {
		t.Fatal(err)
	}
	if c.hosts != "a,b:4333" || c.database != "orders" || c.timeout != 3*time.Second || !c.declared || strings.Contains(c.uri, "durable") {
		t.Errorf("%+v", c)
	}
	if c, err = parseURL("mongodb://a"); err != nil || c.database != DefaultDatabase || c.timeout != DefaultTimeout || c.declared {
		t.Errorf("%+v %v", c, err)
	}
	for url, c := range map[string]struct {
		is   error
		want string
	}{
		"mongodb:a":                              {journal.ErrInvalid, "mongodb:// or mongodb+srv://"},
		"mongodb+srv://":                         {journal.ErrInvalid, ""},
		"mongodb://u:secret@a:x/d":               {journal.ErrInvalid, ""},
		"mongodb://a/d?w=1":                      {journal.ErrWeak, "write concern w"},
		"mongodb://a/d?w=0":                      {journal.ErrWeak, "write concern w"},
		"mongodb://a/d?journal=false":            {journal.ErrWeak, "journal=false"},
		"mongodb://a/d?readConcernLevel=local":   {journal.ErrWeak, "readConcernLevel=local"},
		"mongodb://a/d?readPreference=secondary": {journal.ErrWeak, "readPreference=secondary"},
		"mongodb://a/d?durable=yes":              {journal.ErrInvalid, "option durable"},
		"mongodb://a/d?nonsense=1&w=1":           {journal.ErrInvalid, "nonsense"},
		"mongodb://a/d.e":                        {journal.ErrInvalid, "name of a database"},
		"mongodb://a/d?%zz=1":                    {journal.ErrInvalid, "its options"},
	} {
		refused(t, url, c.is, c.want)
	}
}

// G11: what the server has against it is told in a sentence that says what to change, and a newer layout is left as it is.
func TestRefused(t *testing.T) {
	refused(t, "mongodb://127.0.0.1:1/d?durable=declared&serverSelectionTimeoutMS=500&timeoutMS=2000", nil, "no server that can be written to answers", "correct the hosts")
	url := newURL(t, server, "")
	j := mustOpen(t, url, quiet())
	var info bson.M
	if err := j.command(t.Context(), j.client.Database("admin"), bson.D{{Key: "buildInfo", Value: 1}}, &info); err != nil {
		t.Fatal(err)
	}
	bare := strings.Replace(url, "durable=declared", "", 1)
	ferret := false
	for field := range info {
		ferret = ferret || strings.HasPrefix(strings.ToLower(field), "ferretdb")
	}
	if ferret {
		refused(t, bare, journal.ErrWeak, "FerretDB", "durable=declared")
	} else {
		mustOpen(t, bare, quiet())
	}
	db := j.records.Database()
	if _, err := db.Collection(schemaName).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "layout"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 2}}}}); err != nil {
		t.Fatal(err)
	}
	refused(t, url, journal.ErrNewerFormat, "layout 2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, url, quiet()); !errors.Is(err, context.Canceled) {
		t.Errorf("opened with an ended context: %v", err)
	}
}

// §4 and G10: each answer of the server becomes what it means; what is not known for sure is unknown.
func TestClassify(t *testing.T) {
	dup := mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000, Message: "E11000 duplicate key"}}}
	late := mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Message: "waiting for replication timed out"}}
	both := mongo.WriteException{WriteErrors: dup.WriteErrors, WriteConcernError: late.WriteConcernError}
	for _, c := range []struct {
		err  error
		want error
		says string
	}{
		{dup, errTaken, ""},
		{late, errNoAnswer, ""},
		{both, errNoAnswer, ""},
		{context.DeadlineExceeded, errNoAnswer, ""},
		{mongo.CommandError{Code: 10107, Name: "NotWritablePrimary"}, errNoAnswer, ""},
		{mongo.CommandError{Code: 91, Name: "ShutdownInProgress"}, errNoAnswer, ""},
		{mongo.CommandError{Code: 14031, Name: "OutOfDiskSpace"}, journal.ErrFull, ""},
		{mongo.CommandError{Code: 8000, Message: "you are over your space quota"}, journal.ErrFull, ""},
		{mongo.CommandError{Code: 10334, Name: "BSONObjectTooLarge"}, journal.ErrTooLarge, ""},
		{mongo.CommandError{Code: 13, Name: "Unauthorized"}, nil, "role readWrite"},
		{mongo.CommandError{Code: 18, Name: "AuthenticationFailed"}, nil, "user or its password"},
	} {
		got := classify(c.err)
		if c.want != nil && !errors.Is(got, c.want) || !strings.Contains(got.Error(), c.says) {
			t.Errorf("%v became %v", c.err, got)
		}
		if c.want == nil && (errors.Is(got, errNoAnswer) || !strings.Contains(explain(c.err).Error(), c.says)) {
			t.Errorf("%v became %v, and %v", c.err, got, explain(c.err))
		}
	}
	if classify(nil) != nil || unknown(nil) != nil {
		t.Error("no error became one")
	}
}
