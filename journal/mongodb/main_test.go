package mongodb

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// server is the MongoDB that the environment names, or FerretDB.
var server *testserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = testserver.Start("mongodb"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// quiet discards the log of a driver.
func quiet() Options { return Options{Logger: slog.New(slog.DiscardHandler)} }

var databaseNo atomic.Int64

// newURL is the URL of a journal in a database of the test's own on a server, which is dropped at its end.
func newURL(t testing.TB, s *testserver.Server, query string) string {
	t.Helper()
	name := fmt.Sprintf("t%d_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9, databaseNo.Add(1))
	base, own, _ := strings.Cut(s.URL(), "?")
	if own != "" {
		own += "&"
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(s.URL()))
		if err != nil {
			t.Log(err)
			return
		}
		if err := client.Database(name).Drop(ctx); err != nil {
			t.Log(err)
		}
		if err := client.Disconnect(ctx); err != nil {
			t.Log(err)
		}
	})
	return strings.TrimSuffix(base, "/") + "/" + name + "?" + own + "durable=declared" + query
}

// mustOpen opens a journal that is closed at the end of the test.
func mustOpen(t testing.TB, url string, opts Options) *Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	j, err := Open(ctx, url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}
