package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// server is the server of all tests that do not harm it.
var server *testserver.Server

// soak is the factor of the counts of long tests.
var soak = 1

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := appendUntilFenced(url, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		soak = 20
	}
	var err error
	if server, err = testserver.Start("postgres"); err != nil {
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

// quiet returns options that log nothing.
func quiet(o Options) Options {
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// newSchema returns the URL of a journal that does not exist yet, and removes it after the test.
func newSchema(t testing.TB, s *testserver.Server) string {
	t.Helper()
	b := make([]byte, 6)
	rand.Read(b) // never fails
	schema := "test_" + hex.EncodeToString(b)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			t.Errorf("remove schema %s: %v", schema, err)
			return
		}
		defer conn.Close(ctx) //nolint:errcheck // nothing is lost with it
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
			t.Errorf("remove schema %s: %v", schema, err)
		}
	})
	return withOption(s.URL(), "schema", schema)
}

// withOption adds an option to a URL.
func withOption(url, name, value string) string {
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	return url + sep + name + "=" + value
}

// open opens a journal, and closes it after the test.
func openTest(t testing.TB, url string, o Options) *Journal {
	t.Helper()
	j, err := Open(t.Context(), url, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}
