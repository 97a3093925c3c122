package hbase

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

func checkError(t testing.TB, err error, want string, is ...error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want a line with %q", err, want)
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
}

// tableOf makes a table of one's own with the given settings, and returns options for it.
func tableOf(t *testing.T, name string, d *thrift2.TTableDescriptor) Options {
	t.Helper()
	j := mustOpen(t, testOptions(t, server))
	o := testOptions(t, server)
	o.Table = testTable + name
	own := &Journal{opts: o, table: []byte(o.Table), pool: j.pool}
	if d != nil {
		d.TableName = own.thriftTable()
		if err := j.pool.do(t.Context(), func(ctx context.Context, c client) error { return c.CreateTable(ctx, d, nil) }); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		err := j.pool.do(context.Background(), func(ctx context.Context, c client) error {
			if err := c.DisableTable(ctx, own.thriftTable()); err != nil {
				return err
			}
			return c.DeleteTable(ctx, own.thriftTable())
		})
		if err != nil {
			t.Logf("the table stays: %v", err)
		}
	})
	return o
}

func descriptor(durability thrift2.TDurability, ttl int32) *thrift2.TTableDescriptor {
	d := &thrift2.TTableDescriptor{Durability: &durability}
	for _, f := range families {
		fd := &thrift2.TColumnFamilyDescriptor{Name: []byte(f)}
		if ttl > 0 && f == familyBodies {
			fd.TimeToLive = &ttl
		}
		d.Columns = append(d.Columns, fd)
	}
	return d
}

// G1: a table whose settings promise less than synced for ever is refused, with the command that changes it.
func TestWeakTable(t *testing.T) {
	for _, weak := range []thrift2.TDurability{thrift2.TDurability_SYNC_WAL, thrift2.TDurability_USE_DEFAULT} {
		o := tableOf(t, weak.String(), descriptor(weak, 0))
		wantOpenError(t, o, "alter '"+o.Table+"', DURABILITY => 'FSYNC_WAL'", journal.ErrWeak)
	}
	o := tableOf(t, "ttl", descriptor(thrift2.TDurability_FSYNC_WAL, 3600))
	wantOpenError(t, o, "{NAME => 'b', TTL => 'FOREVER'}", journal.ErrWeak)
	undeclared := testOptions(t, server)
	undeclared.Synced = false
	wantOpenError(t, undeclared, "say synced=true in the URL", journal.ErrWeak)
}

// G11: what is no journal's table is refused and left as it is; a table that an administrator has created is taken.
func TestForeignTable(t *testing.T) {
	d := descriptor(thrift2.TDurability_FSYNC_WAL, 0)
	d.Columns = d.Columns[:2]
	wantOpenError(t, tableOf(t, "few", d), "it has no family \"b\"", journal.ErrInvalid)

	o := tableOf(t, "hand", descriptor(thrift2.TDurability_FSYNC_WAL, 0))
	ro := o
	ro.ReadOnly = true
	if err := mustOpen(t, ro).Close(); err != nil { // empty, and stays so
		t.Fatal(err)
	}
	j := mustOpen(t, testOptions(t, server))
	j.table = []byte(o.Table)
	if err := putCell(t.Context(), j, "row", colHead, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, o, "the table holds rows and no version", journal.ErrInvalid)
	if r, err := j.get(t.Context(), rowFormat, newGet(), colFormat); err != nil || len(r.cells) > 0 {
		t.Errorf("a table that was refused has a version: %v %v", r.cells, err)
	}
	if err := j.sweep(t.Context(), "", "", "row", colHead); err != nil {
		t.Fatal(err)
	}
	acquire(t, mustOpen(t, o), "orders").add(nil)
}

// A newer version is refused and nothing is changed; so is a newer head of a stream.
func TestNewerVersion(t *testing.T) {
	o := tableOf(t, "newer", nil)
	j := mustOpen(t, o)
	w := acquire(t, j, "orders")
	w.add(nil)
	e, err := j.newChain("orders").last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte{}, e.raw...)
	raw[0]++
	row := bucketRow(j.streamRow("orders"), e.first)
	if err := putCell(t.Context(), j, row, colHead, raw); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Acquire(t.Context(), "orders"); !errors.Is(err, journal.ErrNewerFormat) {
		t.Errorf("acquire a stream of a newer version: %v", err)
	}
	if r, err := j.get(t.Context(), row, newGet(), colHead); err != nil || string(r.value(colHead)) != string(raw) {
		t.Errorf("the newer head was changed: %v", err)
	}
	if err := putCell(t.Context(), j, rowFormat, colFormat, []byte("2")); err != nil {
		t.Fatal(err)
	}
	for _, ro := range []bool{false, true} {
		o.ReadOnly = ro
		wantOpenError(t, o, "it holds version 2, this binary knows up to 1", journal.ErrNewerFormat)
	}
	if r, err := j.get(t.Context(), rowFormat, newGet(), colFormat); err != nil || string(r.value(colFormat)) != "2" {
		t.Errorf("the version was changed: %v", err)
	}
}

// A read-only journal reads and changes nothing.
func TestReadOnly(t *testing.T) {
	o := testOptions(t, server)
	w := acquire(t, mustOpen(t, o), "orders")
	rec := w.add([]byte("x"))
	o.ReadOnly = true
	j := mustOpen(t, o)
	r, err := j.Open(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	wantHistory(t, r, []journal.Header{rec.Header})
	_, err = j.Acquire(t.Context(), "orders")
	checkError(t, err, "reading only", ErrReadOnly)
	checkError(t, j.PutMember(t.Context(), "a", nil), "reading only", ErrReadOnly)
	o.Table += "none"
	wantOpenError(t, o, "there is no such table", journal.ErrNotFound)
}

// fakeGateway answers as told.
type fakeGateway struct {
	thrift2.THBaseService // anything else panics
	kind                  thrift2.TThriftServerType
	fail                  string
}

func (g *fakeGateway) GetThriftServerType(context.Context) (thrift2.TThriftServerType, error) {
	return g.kind, nil
}

func (g *fakeGateway) TableExists(context.Context, *thrift2.TTableName) (bool, error) {
	if g.fail != "" {
		return false, &thrift2.TIOError{Message: &g.fail}
	}
	return false, nil
}

func (g *fakeGateway) CreateTable(context.Context, *thrift2.TTableDescriptor, [][]byte) error {
	text := "org.apache.hadoop.hbase.security.AccessDeniedException: Insufficient permissions\n\tat a.b.C"
	return &thrift2.TIOError{Message: &text}
}

func startFake(t *testing.T, g *fakeGateway) string {
	t.Helper()
	sock, err := thrift.NewTServerSocket("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := sock.Listen(); err != nil {
		t.Fatal(err)
	}
	srv := thrift.NewTSimpleServer4(thrift2.NewTHBaseServiceProcessor(g), sock, thrift.NewTBufferedTransportFactory(8192), thrift.NewTBinaryProtocolFactoryConf(nil))
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.AcceptLoop() }()
	t.Cleanup(func() { _ = srv.Stop(); <-done })
	return sock.Addr().String()
}

// startProxy starts what answers each request by HTTP with a status alone.
func startProxy(t *testing.T, code int) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// G11: each thing that can be wrong with a gateway is a sentence that says what to change.
func TestWrongGateway(t *testing.T) {
	o := testOptions(t, server)
	o.Timeout = 2 * time.Second
	at := func(address string) Options {
		o := o
		o.Gateways = []string{address}
		return o
	}
	wantOpenError(t, at("127.0.0.1:1"), "see that \"hbase thrift2 start\" runs there")
	wantOpenError(t, at("no-such-host.invalid:9090"), "no gateway can be reached")

	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	wantOpenError(t, at(deaf.Addr().String()), "set framed=true if")
	framed := o
	framed.Framed = true
	wantOpenError(t, framed, "or none of them if in neither")
	secure := o
	secure.HTTPS = true
	wantOpenError(t, secure, "does not answer as a Thrift2 gateway would")

	wantOpenError(t, at(startFake(t, &fakeGateway{kind: thrift2.TThriftServerType_ONE})), "start one by \"hbase thrift2 start\"")
	two := thrift2.TThriftServerType_TWO
	wantOpenError(t, at(startFake(t, &fakeGateway{kind: two, fail: "Zookeeper LIST could not be completed"})), "see that HBase runs")
	wantOpenError(t, at(startFake(t, &fakeGateway{kind: two, fail: "o.a.h.h.NamespaceNotFoundException: x"})), "create_namespace")
	wantOpenError(t, at(startFake(t, &fakeGateway{kind: two})), "{DURABILITY => 'FSYNC_WAL'} and grant 'USER', 'RWXC', '"+o.Table+"'")
	for code, want := range map[int]string{
		http.StatusUnauthorized: "set USER:PASSWORD@ in the URL to those of a proxy before the gateway",
		http.StatusForbidden:    "set USER:PASSWORD@ in the URL to those of a proxy before the gateway",
		http.StatusNotFound:     "does not answer as a Thrift2 gateway would",
	} {
		proxy := at(startProxy(t, code))
		proxy.HTTP = true
		wantOpenError(t, proxy, want)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(cancelled, o); !errors.Is(err, context.Canceled) {
		t.Errorf("open with an ended context: %v", err)
	}
}

// What HBase says of changes is told with what to do; a quota is a full store.
func TestExplained(t *testing.T) {
	o := Options{Table: "ns:queues"}
	for text, want := range map[string]string{
		"AccessDeniedException: x":                  "grant 'USER', 'RWXC', 'ns:queues'",
		"SpaceLimitingException: NO_WRITES x":       "storage full: a space quota is used up",
		"TableNotFoundException: ns:queues":         "table ns:queues is gone",
		"TableNotEnabledException: x":               "enable 'ns:queues'",
		"NamespaceNotFoundException: x":             "create_namespace 'ns'",
		"RetriesExhaustedException: x\n\tat y.Z(1)": "HBase: RetriesExhaustedException: x",
		"": "HBase: an error without a text",
	} {
		checkError(t, o.explain(&thrift2.TIOError{Message: &text}), want)
	}
}

// A table of several regions, with streams in all of them.
func TestRegions(t *testing.T) {
	o := tableOf(t, "regions", nil)
	o.prefix, o.Regions, o.BucketRecords = "", 6, 2
	j := mustOpen(t, o)
	want := map[string]uint64{}
	for i := range 20 {
		name := fmt.Sprintf("orders %d", i)
		w := acquire(t, j, name)
		for range i % 7 {
			w.add([]byte("body"))
		}
		want[name] = w.at.End
	}
	other := mustOpen(t, o)
	for info, err := range other.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := want[info.Name]; !ok || end != info.End {
			t.Errorf("stream %q ends at %d, want %d (%v)", info.Name, info.End, end, ok)
		}
		delete(want, info.Name)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}
