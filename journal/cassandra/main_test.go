package cassandra

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// server is one node, shared by all tests that do not stop or configure it.
var server *testserver.Server

// soak is the factor of the counts of long tests.
var soak = 1

func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		soak = 20
	}
	if os.Getenv(rivalEnv) != "" {
		os.Exit(rival())
	}
	// The rules of the suite wait for the server most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if server, err = testserver.Start("cassandra"); err != nil {
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

// options returns those that a URL says, with names of their own: tests share the tables.
func options(t testing.TB, url string) Options {
	t.Helper()
	o, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.prefix = fmt.Sprintf("%08x/", rand.Uint32())
	o.Logger = slog.New(slog.DiscardHandler)
	o.Timeout = max(o.Timeout, 5*time.Second) // a busy machine is no failure
	return o
}

func open(t testing.TB, o Options) *Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	j, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// raw opens a session of the client's own.
func raw(t testing.TB, o Options) *gocql.Session {
	t.Helper()
	c := o.cluster(20 * time.Second)
	c.Keyspace = o.Keyspace
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// with returns a URL with another keyspace and further options.
func with(url, keyspace, more string) string {
	place, query, _ := strings.Cut(url, "?")
	place = place[:strings.LastIndexByte(place, '/')+1] + keyspace
	return place + "?" + query + more
}
