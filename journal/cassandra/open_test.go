package cassandra

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// newKeyspace returns the name of a keyspace that does not exist, and removes it after the test.
func newKeyspace(t testing.TB, url string) string {
	t.Helper()
	name := fmt.Sprintf("test_%08x", rand.Uint32())
	o := options(t, url)
	c := o.cluster(30 * time.Second)
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Query("DROP KEYSPACE IF EXISTS " + name).Exec(); err != nil {
			t.Errorf("remove keyspace %s: %v", name, err)
		}
		s.Close()
	})
	return name
}

// refused requires that a URL cannot be opened, with an error that says what to change.
func refused(t *testing.T, url string, is error, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	j, err := Open(ctx, options(t, url))
	if err == nil {
		_ = j.Close()
		t.Errorf("%s was opened, want an error with %q", url, want)
		return
	}
	t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q", err, w)
		}
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v, want %v", err, is)
	}
}

// G11: what is wrong with a keyspace or a cluster is told with what to change, and nothing is changed.
func TestRefusesKeyspaces(t *testing.T) {
	url := server.URL()
	plain, _, _ := strings.Cut(url, "?")
	ks := newKeyspace(t, url)
	refused(t, with(plain, ks, ""), nil, "there is no keyspace "+ks, "replication=3")
	refused(t, with(plain, ks, "replication=3"), nil, "has 1 nodes, too few for replication=3")
	open(t, options(t, with(url, ks, "")))
	refused(t, with(plain, ks, ""), journal.ErrWeak, "one replica", "replication=1")
	refused(t, with(plain, ks, "replication=2"), nil, "has 1 replicas", "replication=2")
	refused(t, with(url, ks, "&dc=nowhere"), nil, `datacenter "nowhere"`, "datacenter1")
	refused(t, with(url, ks, "&dc=datacenter1&consistency=local_quorum"), nil, "consistency quorum", "local_quorum in datacenter1")
	refused(t, with(url, ks, "&max-record=900MiB"), nil, "max-record", "commitlog_segment_size")
	refused(t, with(url, ks, "&max-part=900MiB"), nil, "max-part")

	tools := raw(t, options(t, with(url, ks, "")))
	exec := func(stmt string) {
		t.Helper()
		if err := tools.Query(stmt).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER KEYSPACE " + ks + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND durable_writes = false")
	refused(t, with(url, ks, ""), journal.ErrWeak, "durable_writes = true")
	exec("ALTER KEYSPACE " + ks + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = true")
	open(t, options(t, with(url, ks, "")))
	refused(t, with(url, ks, "&dc=datacenter1&consistency=local_quorum"), nil, "SimpleStrategy")

	// A later version: refused, and left alone.
	exec("UPDATE holdfast SET value = '2' WHERE name = 'version'")
	exec("DROP TABLE members")
	refused(t, with(url, ks, ""), journal.ErrNewerFormat, "version 2", "up to 1")
	n := 0
	if err := tools.Query("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ?", ks).Scan(&n); err != nil || n != len(tables)-1 {
		t.Errorf("%d tables, %v", n, err)
	}
	exec("UPDATE holdfast SET value = 'x' WHERE name = 'version'")
	refused(t, with(url, ks, ""), journal.ErrCorrupt, `version "x"`)
}

// A keyspace that is local to a datacenter works, and no other way of using it.
func TestLocalConsistency(t *testing.T) {
	url := server.URL()
	ks := newKeyspace(t, url)
	j := open(t, options(t, with(url, ks, "&dc=datacenter1&consistency=local_quorum")))
	w := newWriter(t, j, "orders")
	w.append(3, 100)
	w.wantAcked(w.s)
	refused(t, with(url, ks, ""), nil, "consistency local_quorum in datacenter1", "the URL says quorum")
}

// Several processes may make the tables at the same time.
func TestConcurrentSetUp(t *testing.T) {
	url := server.URL()
	ks := newKeyspace(t, url)
	var wg sync.WaitGroup
	for i := range 4 {
		o := options(t, with(url, ks, ""))
		wg.Go(func() {
			j, err := Open(t.Context(), o)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			defer func() { _ = j.Close() }()
			if _, err := j.Acquire(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A journal for reading only reads, and refuses changes.
func TestReadOnly(t *testing.T) {
	o := options(t, server.URL())
	w := newWriter(t, open(t, o), "orders")
	w.append(2, 10)
	o.ReadOnly = true
	j := open(t, o)
	r, err := j.Open(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	w.wantAcked(r)
	for what, err := range map[string]error{
		"acquire": func() error { _, err := j.Acquire(t.Context(), "orders"); return err }(),
		"import": func() error {
			_, err := j.Import(t.Context(), "x", journal.Info{UID: journal.UID{1}, Epoch: 1})
			return err
		}(),
		"put member": j.PutMember(t.Context(), "m", nil),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	o = options(t, with(server.URL(), "never_made", ""))
	o.ReadOnly = true
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no keyspace never_made") {
		t.Error(err)
	}
}

// G9: opening ends with its context, also where nobody answers.
func TestUnreachable(t *testing.T) {
	refused(t, "cassandra://127.0.0.1:1/holdfast", nil, "127.0.0.1:1", "can be reached", "9042")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are taken by the system, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o := options(t, "cassandra://"+silent.Addr().String()+"/holdfast")
	o.ConnectTimeout = 2 * time.Second
	if _, err := Open(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

// G1 and G11, on a server with passwords, permissions and TLS, whose commit log is synced too late.
func TestSecureServer(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "CASSANDRA_AUTH=1", "CASSANDRA_TLS=1", "CASSANDRA_SYNC=periodic")
	url := s.URL()
	refused(t, url, journal.ErrWeak, "commitlog_sync: periodic", "batch or group", "accept-weak=true")
	weak := with(url, "holdfast", "&accept-weak=true")
	j := open(t, options(t, weak))
	w := newWriter(t, j, "orders")
	w.append(3, 100)
	w.wantAcked(w.s)
	// That such a server syncs less is what the count of loneAppends shows of others.
	if n := loneAppends(t, s, "&accept-weak=true"); n >= 100 {
		t.Errorf("%d syncs in 100 appends with commitlog_sync: periodic; the count proves nothing", n)
	}

	refused(t, strings.Replace(weak, "cassandra:cassandra@", "cassandra:wrong@", 1), nil, `password of user "cassandra"`)
	refused(t, strings.Replace(weak, "cassandra:cassandra@", "", 1), nil, "wants a user name and a password")
	noTLS, _, _ := strings.Cut(url, "&tls")
	refused(t, noTLS+"&timeout=1s", nil, "tls=true")
	refused(t, noTLS+"&tls=true", nil, "TLS with", "ca")
	refused(t, weak+"&tls-name=elsewhere", nil, "TLS with", "tls-name")

	// A role without rights; with those that the errors ask for.
	tools := raw(t, options(t, weak))
	exec := func(stmt string) {
		t.Helper()
		if err := tools.Query(stmt).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true")
	clerk := strings.Replace(weak, "cassandra:cassandra@", "clerk:clerk@", 1)
	refused(t, with(clerk, "other", ""), nil, "there is no keyspace other", `"clerk" may not make it`)
	refused(t, clerk, nil, `"clerk" may not`, "GRANT SELECT and MODIFY ON KEYSPACE holdfast")
	exec("GRANT SELECT ON KEYSPACE holdfast TO clerk")
	until(t, "the right to read", func() bool {
		_, err := Open(t.Context(), options(t, clerk))
		return err != nil && strings.Contains(err.Error(), "as a test")
	})
	refused(t, clerk, nil, `"clerk" may not`, "MODIFY")
	exec("GRANT MODIFY ON KEYSPACE holdfast TO clerk")
	until(t, "the right to write", func() bool {
		j, err := Open(t.Context(), options(t, clerk))
		if err != nil {
			return false
		}
		defer func() { _ = j.Close() }()
		_, err = j.Acquire(t.Context(), "orders")
		return err == nil
	})
}
