package jetstream

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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	njs "github.com/nats-io/nats.go/jetstream"

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

// G11: each part of a URL that is wrong is named, all at once.
func TestURL(t *testing.T) {
	c, err := parseURL("nats://us%3Aer:p%40ss@a,b:4333,[::1]:4444/ORDERS?replicas=3&sync=always&timeout=3s&placement-tags=x,y")
	if err != nil {
		t.Fatal(err)
	}
	if c.user != "us:er" || c.password != "p@ss" || c.stream != "ORDERS" || c.replicas != 3 || c.timeout != 3*time.Second ||
		strings.Join(c.servers, " ") != "nats://a:4222 nats://b:4333 nats://[::1]:4444" || len(c.placementTags) != 2 {
		t.Errorf("%+v", c)
	}
	if c, err = parseURL("nats://token@a?sync=always"); err != nil || c.token != "token" || c.stream != DefaultStream || !c.create {
		t.Errorf("%+v %v", c, err)
	}
	for url, want := range map[string][]string{
		"nats:a":                                 {"begin with nats://"},
		"nats://":                                {"HOST:PORT"},
		"nats://a:x/S?replicas=9&tls-cert=f&z=1": {`"a:x"`, "option replicas", "tls-cert and tls-key", `unknown option "z"`, "known are connect-timeout, create, creds"},
		"nats://u:%zz@a":                         {"user and password"},
		"nats://a/a.b":                           {"name of a JetStream stream"},
		"nats://a?sync=never":                    {"option sync", "sync_interval: always"},
		"nats://a?timeout=0":                     {"option timeout"},
		"nats://a?create=perhaps":                {"not true or false"},
		"nats://a?timeout=1s&timeout=2s":         {"given 2 times"},
		"nats://a?tls-ca=/nowhere":               {"option tls-ca"},
		"nats://a?system-password=x":             {"system-password without"},
	} {
		refused(t, url, journal.ErrInvalid, want...)
	}
}

// G11: a host that cannot be reached is told with what to change, whatever the reason.
func TestUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are taken by the system, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rude, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := rude.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	defer func() { _ = rude.Close(); <-done }()
	query := "/S?connect-timeout=300ms&sync=always"
	refused(t, "nats://127.0.0.1:1"+query, nil, "no server can be reached; correct the hosts")
	refused(t, "nats://u:secret@no-such-host.invalid"+query, nil, "host no-such-host.invalid is not known; correct the hosts")
	refused(t, "nats://"+silent.Addr().String()+query, nil, "no server answers; correct the hosts")
	refused(t, "nats://"+rude.Addr().String()+query, nil, "does not answer as a NATS server would; correct the hosts")
	refused(t, "nats://"+silent.Addr().String()+query+"&creds=/no/where", nil, "cannot be read; correct creds", "/no/where")
}

// G1 and G11: whatever is wrong with the store is told in a sentence that says what to change.
func TestRefused(t *testing.T) {
	s := ownCluster(t, "NATS_SYNC_2=2m")
	hosts := func(user string) string {
		return strings.Replace(streamURL(s, "", ""), "holdfast:holdfast", user, 1)
	}
	url := func(user, stream, query string) string {
		return strings.TrimSuffix(hosts(user), "/?") + "/" + stream + "?" + query
	}
	j := mustOpen(t, url("holdfast:holdfast", "GOOD", "sync=always&replicas=3"), quiet())

	refused(t, url("holdfast:secret1", "GOOD", "sync=always"), nil, "refuses the user or its password")
	refused(t, "nats://holdfast:secret@127.0.0.1:1/GOOD?sync=always", nil, "no server can be reached")
	refused(t, url("plain:plain", "GOOD", "sync=always"), nil, "JetStream is not enabled for the user's account")
	refused(t, url("reader:reader", "GOOD", "sync=always"), nil, "the server denies it", "GOOD.x", "give the user that right")
	refused(t, url("reader:reader", "OTHER", "sync=always"), nil, "the server denies it", "STREAM.CREATE.OTHER")
	refused(t, url("holdfast:holdfast", "OTHER", "sync=always&create=false"), nil, "no stream OTHER", "create=false")
	refused(t, url("holdfast:holdfast", "GOOD", ""), journal.ErrWeak, "sync=always", "system-user")
	refused(t, url("holdfast:holdfast", "GOOD", "system-user=sys&system-password=sys"), journal.ErrWeak, "n2", "sync_interval: always")
	refused(t, url("holdfast:holdfast", "GOOD", "system-user=sys&system-password=secret"), nil, "system account", "refuses the user")
	refused(t, url("holdfast:holdfast", "GOOD", "system-user=holdfast&system-password=holdfast"), nil, "sync_interval", "is holdfast a user of the system account")
	refused(t, url("holdfast:holdfast", "GOOD", "sync=always&replicas=1"), journal.ErrInvalid, "3 replicas", "replicas=1", "nats stream edit")
	refused(t, url("holdfast:holdfast", "GOOD", "sync=always&placement-tags=a"), journal.ErrInvalid, "placed by the tags")
	refused(t, url("holdfast:holdfast", "GOOD", "sync=always&placement-cluster=mars"), journal.ErrInvalid, "cluster mars")
	refused(t, url("holdfast:holdfast", "GOOD", "sync=always&tls=true"), nil, "does not use TLS")
	refused(t, url("holdfast:holdfast", "GOOD", "sync=always&domain=hub"), nil, "domain=")

	for name, c := range map[string]struct {
		change func(*njs.StreamConfig)
		is     error
		want   string
	}{
		"FOREIGN": {func(c *njs.StreamConfig) { c.Metadata = nil }, journal.ErrInvalid, "was not made by Holdfast"},
		"NEWER":   {func(c *njs.StreamConfig) { c.Metadata[schemaKey] = "2" }, journal.ErrNewerFormat, "layout 2"},
		"MEMORY":  {func(c *njs.StreamConfig) { c.Storage = njs.MemoryStorage }, journal.ErrWeak, "storage is memory"},
		"AGE":     {func(c *njs.StreamConfig) { c.MaxAge = time.Hour }, journal.ErrWeak, "max_age"},
		"OLD":     {func(c *njs.StreamConfig) { c.MaxBytes, c.Discard = 1<<30, njs.DiscardOld }, journal.ErrWeak, "discard is old"},
		"ASYNC": {func(c *njs.StreamConfig) {
			c.PersistMode = njs.AsyncPersistMode
			c.AllowAtomicPublish = false
			c.Replicas = 1
		}, journal.ErrWeak, "persist_mode"},
		"WORK":  {func(c *njs.StreamConfig) { c.Retention = njs.InterestPolicy }, journal.ErrWeak, "retention"},
		"SMALL": {func(c *njs.StreamConfig) { c.MaxMsgSize = 10_000 }, journal.ErrInvalid, "max_msg_size"},
	} {
		cfg := wanted(&config{stream: name}, 3)
		c.change(&cfg)
		if _, err := j.c.js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before, err := j.c.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, url("holdfast:holdfast", name, "sync=always"), c.is, c.want)
		after, err := before.Info(t.Context())
		if err != nil || after.State.LastSeq != 0 && name != "SMALL" {
			t.Errorf("%s: the refused stream has %d messages (%v)", name, after.State.LastSeq, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, url("holdfast:holdfast", "GOOD", "sync=always"), quiet()); !errors.Is(err, context.Canceled) {
		t.Errorf("opened with an ended context: %v", err)
	}
	for v, ok := range map[string]bool{"2.15.3": true, "2.12.0": true, "3.0.0-beta": true, "2.11.9": false, "1.9.0": false, "x": false} {
		if err := checkVersion(v); (err == nil) != ok {
			t.Errorf("server version %q: %v", v, err)
		}
	}
}

// G1: the servers' setting is read where the URL gives a user for that, also while one of three is down.
func TestSyncIsRead(t *testing.T) {
	s := ownCluster(t)
	query := "system-user=sys&system-password=sys&replicas=3"
	j := mustOpen(t, streamURL(s, "READ", query), quiet())
	node := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader(t, j)]
	if err := s.Kill(node); err != nil {
		t.Fatal(err)
	}
	w := acquire(t, mustOpen(t, streamURL(s, "READ", query), quiet()), "orders")
	if err := w.append(t.Context(), w.next(1, nil)); err != nil {
		t.Error(err)
	}
}

// §10: TLS, with the server's own authority, from the URL.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	s := ownCluster(t, "NATS_NODES=1", "NATS_CERT="+cert, "NATS_KEY="+key)
	refused(t, streamURL(s, "TLS", "sync=always"), nil, "unknown authority", "tls-ca=FILE")
	refused(t, streamURL(s, "TLS", "sync=always&tls-server-name=other&tls-ca="+cert), nil, "for another host")
	w := acquire(t, mustOpen(t, streamURL(s, "TLS", "sync=always&tls-ca="+cert), quiet()), "orders")
	if err := w.append(t.Context(), w.next(1, nil)); err != nil {
		t.Error(err)
	}
}

// certificate makes a certificate for 127.0.0.1 that is its own authority, and returns its files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
