package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// change returns a URL with something changed.
func change(t *testing.T, text string, f func(u *url.URL)) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	f(u)
	return u.String()
}

// runSQL runs statements as the server's superuser, in its database.
func runSQL(t *testing.T, statements ...string) {
	t.Helper()
	conn := connect(t, server.URL())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// wantRefused requires that opening fails with a sentence that says these things, and never the password.
func wantRefused(t *testing.T, url string, o Options, want ...string) {
	t.Helper()
	o.Timeout = max(o.Timeout, 3*time.Second)
	j, err := Open(t.Context(), url, quiet(o))
	if err == nil {
		_ = j.Close()
		t.Errorf("opened %s, want %q", url, want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v; want %q in it", url, err, w)
		}
	}
	if strings.Contains(err.Error(), ":holdfast@") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v: has the password", err)
	}
}

// G11: what can be wrong with a URL is told, all of it together.
func TestURL(t *testing.T) {
	for _, c := range []struct {
		url  string
		want []string
	}{
		{"mysql://h/d", []string{`begins with "mysql:", want postgres://`}},
		{"postgres://u:s3cret@h:port/d", []string{"the URL cannot be read"}},
		{"postgres://h/d?a=%zz", []string{"the options of the URL"}},
		{"postgres://h/d?search_path=x", []string{`unknown option "search_path"; known are accept-weak`}},
		{"postgres://h/d?pool=1&pool=2", []string{"option pool is there 2 times"}},
		{
			"postgres://u:s3cret@h/d?pool=lots&timeout=5&range=3Q&accept-weak=perhaps&fsync=off",
			[]string{`option pool: "lots" is not a number`, "option timeout:", `option range: "3Q" is not a size`, `option accept-weak: "perhaps"`, `unknown option "fsync"`},
		},
		{"postgres://h/d?schema=Big-One&pool=-1&timeout=-3s", []string{`option Schema is "Big-One"`, "option Pool is -1", "option Timeout is -3s"}},
		{"postgres://h/d?schema=pg_mine&max-record=1GiB", []string{`option Schema is "pg_mine"`, "option MaxRecordBytes is 1073741824"}},
		{"postgres://u:s3cret@h/d?sslmode=sometimes", []string{"the URL cannot be used"}},
		{"postgres://u:s3cret@h/d?sslrootcert=/does/not/exist&sslmode=verify-ca", []string{"the URL cannot be used", "/does/not/exist"}},
	} {
		wantRefused(t, c.url, Options{}, c.want...)
	}
	o := Options{}
	rest, err := parseURL("postgresql://u:p@h:1,h2:2/d?schema=s&pool=3&timeout=5s&range=1MiB&max-record=2M&max-part=4096&accept-weak=true&sslmode=disable", &o)
	if err := errors.Join(err, o.validate()); err != nil {
		t.Fatal(err)
	}
	if rest != "postgresql://u:p@h:1,h2:2/d?sslmode=disable" || o.Schema != "s" || o.Pool != 3 || o.Timeout != 5*time.Second ||
		o.RangeBytes != 1<<20 || o.MaxRecordBytes != 2<<20 || o.MaxPartBytes != 4096 || !o.AcceptWeak {
		t.Errorf("%s, %+v", rest, o)
	}
}

// G11: each thing that keeps a server from being used is a sentence that says what to change.
func TestServerRefusals(t *testing.T) {
	good := newSchema(t, server)
	wantRefused(t, change(t, good, func(u *url.URL) { u.User = url.UserPassword("holdfast", "s3cret") }), Options{}, `refuses the password of role "holdfast": correct the user or the password`)
	wantRefused(t, change(t, good, func(u *url.URL) { u.Path = "/nowhere" }), Options{}, `there is no database "nowhere": make it (CREATE DATABASE nowhere)`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	wantRefused(t, change(t, good, func(u *url.URL) { u.Host = closed }), Options{}, "nothing listens at "+closed)
	wantRefused(t, change(t, good, func(u *url.URL) { u.Host = "no-such-host.invalid:5432" }), Options{}, "is not known: correct the URL")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the backlog, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	wantRefused(t, change(t, good, func(u *url.URL) { u.Host = silent.Addr().String(); u.RawQuery += "&timeout=300ms" }), Options{Timeout: 300 * time.Millisecond}, "does not answer")
	wantRefused(t, withOption(good, "sslmode", "require"), Options{}, "does not speak TLS")
	wantRefused(t, good, Options{ReadOnly: true}, "holds no journal")
}

// G11: rights that are missing are named with what an administrator has to do.
func TestMissingRights(t *testing.T) {
	role := "poor_" + strings.TrimPrefix(mustSchema(t, newSchema(t, server)), "test_")
	runSQL(t, "CREATE ROLE "+role+" LOGIN PASSWORD 's3cret'")
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, server.URL())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx) //nolint:errcheck // nothing is lost with it
		if _, err := conn.Exec(ctx, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	as := func(u *url.URL) { u.User = url.UserPassword(role, "s3cret") }
	fresh := newSchema(t, server)
	schema := mustSchema(t, fresh)
	wantRefused(t, change(t, fresh, as), Options{}, `role "`+role+`" may not make schema`, "CREATE SCHEMA "+schema+" AUTHORIZATION "+role)

	// Made by another role.
	openTest(t, fresh, Options{})
	wantRefused(t, change(t, fresh, as), Options{}, `may not read schema "`+schema+`": connect as the role that made it`)
	runSQL(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role, "GRANT SELECT ON ALL TABLES IN SCHEMA "+schema+" TO "+role)
	wantRefused(t, change(t, fresh, as), Options{}, "may not change the tables", "GRANT holdfast TO "+role)
	// Which is enough for looking.
	j := openTest(t, change(t, fresh, as), Options{ReadOnly: true})
	if _, err := j.Acquire(t.Context(), "q"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("acquired in a journal opened for reading: %v", err)
	}
	for _, err := range j.Streams(t.Context()) {
		t.Error(err)
	}

	// And as the administrator was told to, it works.
	own := newSchema(t, server)
	runSQL(t, "CREATE SCHEMA "+mustSchema(t, own)+" AUTHORIZATION "+role)
	newWriter(t, openTest(t, change(t, own, as), Options{}), "q").put(10, 10)
}

func mustSchema(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("schema")
}

// §3: a newer journal is refused and not changed; several processes may make one at the same time.
func TestVersions(t *testing.T) {
	u := newSchema(t, server)
	opened := make(chan error, 4)
	for range cap(opened) {
		go func() {
			j, err := Open(t.Context(), u, quiet(Options{}))
			if err == nil {
				err = j.Close()
			}
			opened <- err
		}()
	}
	for range cap(opened) {
		if err := <-opened; err != nil {
			t.Fatal(err)
		}
	}
	schema := mustSchema(t, u)
	runSQL(t, "UPDATE "+schema+".holdfast SET version = 2")
	tables := func() (n int) {
		conn := connect(t, server.URL())
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace", schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := tables()
	wantRefused(t, u, Options{}, "is of version 2, this binary knows up to 1")
	if _, err := Open(t.Context(), u, quiet(Options{})); !errors.Is(err, journal.ErrNewerFormat) {
		t.Errorf("%v, want ErrNewerFormat", err)
	}
	if after := tables(); after != before {
		t.Errorf("%d tables before, %d after", before, after)
	}
	runSQL(t, "DELETE FROM "+schema+".holdfast")
	wantRefused(t, u, Options{}, "corrupt")
}

// §4: a standby answers late, so it is refused; also as one of several hosts, of which the primary is taken.
func TestStandby(t *testing.T) {
	primary := ownServer(t)
	standby := ownServer(t, "POSTGRES_STANDBY_OF="+primary.Dir())
	wantRefused(t, withOption(standby.URL(), "schema", "x"), Options{}, "the server is a standby", "name the primary")
	both := change(t, primary.URL(), func(u *url.URL) {
		s, err := url.Parse(standby.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Host = s.Host + "," + u.Host
	})
	newWriter(t, openTest(t, both, Options{}), "q").put(10, 10)
}

// G11 and §9: TLS by the options of the URL.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCert(t, cert, key, "127.0.0.1")
	s := ownServer(t, "POSTGRES_CERT="+cert, "POSTGRES_KEY="+key)
	good := withOption(withOption(s.URL(), "sslmode", "verify-full"), "sslrootcert", cert)
	j := openTest(t, good, Options{})
	newWriter(t, j, "q").put(10, 10)
	var tls bool
	if err := j.pool.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&tls); err != nil || !tls {
		t.Errorf("TLS %v, %v", tls, err)
	}
	other, otherKey := filepath.Join(dir, "other.pem"), filepath.Join(dir, "other-key.pem")
	writeCert(t, other, otherKey, "127.0.0.1")
	wantRefused(t, withOption(withOption(s.URL(), "sslmode", "verify-full"), "sslrootcert", other), Options{}, "certificate is not accepted: name its authority with sslrootcert=FILE")
	wantRefused(t, change(t, good, func(u *url.URL) { u.Host = strings.Replace(u.Host, "127.0.0.1", "localhost", 1) }), Options{}, "certificate is not accepted")
}

// writeCert makes a certificate that signs itself.
func writeCert(t *testing.T, certFile, keyFile, ip string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test " + certFile}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
