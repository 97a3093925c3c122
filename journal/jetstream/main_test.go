package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// server is a cluster of three nodes that sync always.
var server *testserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = testserver.Start("nats"); err != nil {
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

var streamNo atomic.Int64

// newStream returns the name of a JetStream stream of the test's own, which is deleted at its end.
func newStream(t testing.TB, s *testserver.Server) string {
	name := fmt.Sprintf("T%d-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9, streamNo.Add(1))
	t.Cleanup(func() {
		nc, err := nats.Connect(strings.Join(s.URLs(), ","))
		if err != nil {
			t.Logf("delete stream %s: %v", name, err)
			return
		}
		defer nc.Close()
		if _, err := nc.Request("$JS.API.STREAM.DELETE."+name, nil, 10*time.Second); err != nil {
			t.Logf("delete stream %s: %v", name, err)
		}
	})
	return name
}

// streamURL is the URL of a journal on some nodes of a server.
func streamURL(s *testserver.Server, stream, query string) string {
	var hosts []string
	for _, u := range s.URLs() {
		hosts = append(hosts, u[strings.LastIndex(u, "@")+1:])
	}
	return "nats://holdfast:holdfast@" + strings.Join(hosts, ",") + "/" + stream + "?" + query
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
