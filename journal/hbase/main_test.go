package hbase

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// server is the HBase that all tests share but those that hurt it.
var server *testserver.Server

// soak is the factor of the counts of random tests.
var soak = 1

func TestMain(m *testing.M) {
	if os.Getenv(racerEnv) != "" {
		os.Exit(racer())
	}
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		soak = 20
	}
	// Rules wait for the server's syncs most of the time; a -parallel of the command line prevails.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if server, err = testserver.Start("hbase"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		dropTable()
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// testTable is the table of this process in a server that may be shared.
var testTable = "test_" + strings.ToLower(rand.Text()[:12])

// testOptions returns options for a server, with rows of their own in the table.
func testOptions(t testing.TB, s *testserver.Server) Options {
	t.Helper()
	o, err := ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.Table = testTable
	o.Logger = slog.New(slog.DiscardHandler)
	o.prefix = strings.ToLower(rand.Text()[:10]) + "/"
	// More than a user would wait for, as tests fight over two cores.
	o.Timeout = 20 * time.Second
	return o
}

func mustOpen(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// dropTable deletes the table, where the server outlives the tests.
func dropTable() {
	if server.Own() {
		return
	}
	o, err := ParseURL(server.URL())
	if err != nil {
		return
	}
	o.Timeout = time.Minute
	o.Table = testTable
	if err := o.validate(); err != nil {
		return
	}
	j := &Journal{opts: o, table: []byte(testTable), pool: newPool(&o, dialSocket(o.Framed))}
	defer j.Close() //nolint:errcheck // it returns none
	err = j.pool.do(context.Background(), func(ctx context.Context, c client) error {
		if err := c.DisableTable(ctx, j.thriftTable()); err != nil {
			return err
		}
		return c.DeleteTable(ctx, j.thriftTable())
	})
	if err := o.explain(err); err != nil && !strings.Contains(err.Error(), "TableNotFound") { // which no test has created
		fmt.Fprintln(os.Stderr, "the test table stays:", err)
	}
}

// putCell writes a cell behind the journal's back.
func putCell(ctx context.Context, j *Journal, row string, col column, value []byte) error {
	return j.pool.do(ctx, func(ctx context.Context, c client) error {
		return c.Put(ctx, j.table, &thrift2.TPut{
			Row: []byte(row), Durability: &synced,
			ColumnValues: []*thrift2.TColumnValue{{Family: []byte(col.family), Qualifier: []byte(col.qualifier), Value: value}},
		})
	})
}
