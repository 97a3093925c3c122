package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

// Health, readiness, and metrics for everything that an operator asks about a queue.
func TestHealthAndMetrics(t *testing.T) {
	socket := filepath.Join(clitest.Dir(t), "http")
	addr, _ := clitest.Serve(t, "--http", "unix:"+socket, "--journal", clitest.Journal(filepath.Join(clitest.Dir(t), "data")))
	clitest.Run(t, "queue", "create", "jobs", "--retry-first", "1h", "--retry-cap", "1h", "--addr", addr).Want(t, 0)
	clitest.Run(t, "send", "jobs", "a", "b", "c", "--addr", addr).Want(t, 0)
	clitest.Run(t, "send", "jobs", "later", "--delay", "1h", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "jobs", "--count", "1", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "jobs", "--count", "1", "--no-ack", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "jobs", "--count", "1", "--exec", "false", "--addr", addr).Want(t, 1)

	if code, text := clitest.Get(t, socket, "/healthz"); code != 200 || text != "alive\n" {
		t.Errorf("healthz: %d %q", code, text)
	}
	if code, text := clitest.Get(t, socket, "/readyz"); code != 200 || text != "1 queues ready, 0 opening, 0 failed\n" {
		t.Errorf("readyz: %d %q", code, text)
	}
	if code, _ := clitest.Get(t, socket, "/nothing"); code != 404 {
		t.Errorf("/nothing: %d", code)
	}
	code, text := clitest.Get(t, socket, "/metrics")
	if code != 200 {
		t.Fatalf("metrics: %d", code)
	}
	have := map[string]float64{}
	for l := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(l), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			have[name] = v
		}
	}
	for name, want := range map[string]float64{
		`holdfast_queue_depth{queue="jobs"}`:                          3,
		`holdfast_queue_messages{queue="jobs",state="ready"}`:         0,
		`holdfast_queue_messages{queue="jobs",state="in-flight"}`:     1,
		`holdfast_queue_messages{queue="jobs",state="delayed"}`:       1,
		`holdfast_queue_messages{queue="jobs",state="retrying"}`:      1,
		`holdfast_queue_messages{queue="jobs",state="parked"}`:        0,
		`holdfast_queue_messages{queue="jobs",state="moving"}`:        0,
		`holdfast_queue_messages{queue="jobs",state="blocked"}`:       0,
		`holdfast_queue_sent_total{queue="jobs"}`:                     4,
		`holdfast_queue_delivered_total{queue="jobs"}`:                3,
		`holdfast_queue_redelivered_total{queue="jobs"}`:              0,
		`holdfast_queue_nacked_total{queue="jobs"}`:                   1,
		`holdfast_queue_left_total{queue="jobs",way="acked"}`:         1,
		`holdfast_queue_left_total{queue="jobs",way="dead-lettered"}`: 0,
		`holdfast_queue_left_total{queue="jobs",way="expired"}`:       0,
		`holdfast_queue_left_total{queue="jobs",way="purged"}`:        0,
		`holdfast_queue_left_total{queue="jobs",way="dropped"}`:       0,
		`holdfast_queue_left_total{queue="jobs",way="redriven"}`:      0,
		`holdfast_queue_parked_total{queue="jobs"}`:                   0,
		`holdfast_queue_dedup_entries{queue="jobs"}`:                  0,
		`holdfast_queue_dedup_evictions_total{queue="jobs"}`:          0,
		`holdfast_queue_credit_outstanding{queue="jobs"}`:             0,
		`holdfast_queue_ready{queue="jobs"}`:                          1,
		`holdfast_queue_buffered{queue="jobs"}`:                       0,
		`holdfast_queue_waiting_senders{queue="jobs"}`:                0,
		`holdfast_append_seconds_bucket{le="+Inf"}`:                   have[`holdfast_append_seconds_count`],
		`holdfast_queues{state="ready"}`:                              1,
		`holdfast_build_info{version="test"}`:                         1,
	} {
		if got, ok := have[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{
		`holdfast_queue_bytes{queue="jobs"}`, `holdfast_queue_oldest_age_seconds{queue="jobs"}`, `holdfast_queue_journal_stored_bytes{queue="jobs"}`,
		`holdfast_queue_journal_live_bytes{queue="jobs"}`, `holdfast_queue_journal_amplification{queue="jobs"}`, `holdfast_append_events_count`,
		`holdfast_append_seconds_count`, `holdfast_queue_appends_total{queue="jobs"}`, `holdfast_queue_append_seconds_total{queue="jobs"}`, `holdfast_queue_appended_bytes_total{queue="jobs"}`, `holdfast_journal_sync_seconds_count`,
		`holdfast_connections_total`, `process_resident_memory_bytes`, `go_goroutines`,
	} {
		if have[name] <= 0 {
			t.Errorf("%s is %v", name, have[name])
		}
	}
	series := 0
	for name := range have {
		if strings.Contains(name, `queue="jobs"`) {
			series++
		}
	}
	if series > 64 {
		t.Errorf("a queue has %d series: too many for a broker with many queues", series)
	}
}

// What is wrong with the command line or the surroundings ends the start, with a clear sentence (G11).
func TestStartRefuses(t *testing.T) {
	dir := clitest.Dir(t)
	addr, _ := clitest.Serve(t)
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := "unix:" + filepath.Join(dir, "s")
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"--journal", "oracle:x"}, `"oracle:…" is not the URL of a journal`},
		{2, []string{"--journal", "segment:" + dir + "/d?segmnt=1MiB"}, `unknown option "segmnt"`},
		{2, []string{"--max-body", "much"}, "is not a size"},
		{2, []string{"--max-body", "1TiB", "--journal", "segment:" + dir + "/untouched"}, "--max-body is 1TiB, want at most 1GiB"},
		{2, []string{"--journal", "segment:" + dir + "/untouched?segment=-1"}, `option segment: "-1" is a negative size`},
		{2, []string{"--journal", "segment:" + dir + "/untouched?segment=2GiB"}, "option segment: is 2GiB, want 64KiB up to 1GiB"},
		{2, []string{"--journal", "segment:" + dir + "/untouched?reserve=1000TiB"}, "option reserve: is 1000TiB, and the file system"},
		{2, []string{"--heartbeat", "10s", "--expiry", "1s"}, "--expiry is 1s, want at least three times --heartbeat, which is 10s"},
		{2, []string{"extra"}, "serve takes no arguments, and got 1 arguments"},
		{2, []string{"--tls-cert", "x"}, "--tls-cert and --tls-key go together"},
		{2, []string{"--tls-client-ca", "x"}, "--tls-client-ca needs"},
		{1, []string{"--listen", addr}, "address already in use"},
		{2, []string{"--listen", "0.0.0.0:0", "--journal", "segment:" + dir + "/none"}, "others than this machine can reach it"},
		{2, []string{"--token-file", tokens}, "access policy"},
		{2, []string{"--token-file", dir + "/none"}, "no such file"},
		{2, []string{"--tls-cert", tokens, "--tls-key", tokens}, "read the broker's certificate"},
		{2, []string{"--journal", "memory:", "--max-body", "1GiB"}, "--max-body is 1073741824 bytes"},
		{2, []string{"--send-budget", "0", "--open-limit", "-1"}, "--open-limit is -1"},
		{2, []string{"--send-budget", "1"}, "--send-budget is 1 bytes, with which no sender could begin"},
	} {
		args := []string{"serve", "--http", ""}
		for flag, value := range map[string]string{"--listen": listen, "--journal": "memory:"} {
			if !slices.Contains(c.args, flag) {
				args = append(args, flag, value)
			}
		}
		clitest.Run(t, append(args, c.args...)...).WantErr(t, c.code, c.want)
		if _, err := os.Stat(filepath.Join(dir, "untouched")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: a store was made, or %v", c.args, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("a journal was made for a broker that may not serve: %v", err)
	}
}

// Two processes on one directory: the second is told who has it.
func TestTwoProcesses(t *testing.T) {
	dir := clitest.Dir(t)
	url := clitest.Journal(filepath.Join(dir, "data"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	sock := "unix:" + filepath.Join(dir, "s")
	p, err := proc.Start(clitest.Binary(t), []string{"serve", "--journal", url, "--listen", sock, "--http", ""}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	if err := p.AwaitBroker(ctx, sock); err != nil {
		t.Fatal(err)
	}
	r := clitest.Run(t, "serve", "--journal", url, "--listen", "unix:"+filepath.Join(dir, "s2"), "--http", "")
	r.WantErr(t, 1, "in use by another process").WantErr(t, 1, strconv.Itoa(p.PID()))
	clitest.Run(t, "journal", "verify", url).WantErr(t, 1, "in use by another process")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// The signals of the real binary: SIGTERM ends the broker with 0 and everything stored; the liveness endpoint is up within 0.2 s.
func TestRealSignals(t *testing.T) {
	dir := clitest.Dir(t)
	sock, web := filepath.Join(dir, "s"), filepath.Join(dir, "h")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	start := func() *proc.Process {
		p, err := proc.Start(clitest.Binary(t), []string{"serve", "--journal", clitest.Journal(filepath.Join(dir, "data")), "--listen", "unix:" + sock, "--http", "unix:" + web}, log)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start()
	if err := p.AwaitBroker(ctx, "unix:"+sock); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, "send", "q", "a", "b", "--addr", "unix:"+sock).Want(t, 0)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
		if code, err := p.Wait(ctx); code != 0 || err != nil {
			t.Fatalf("%v: exit code %d, %v", s, code, err)
		}
		began := time.Now()
		p = start()
		for {
			c, err := net.Dial("unix", web)
			if err == nil {
				c.Close()
				break
			}
		}
		if code, text := clitest.Get(t, web, "/healthz"); code != 200 || text != "alive\n" {
			t.Errorf("%d %q", code, text)
		}
		limit := 2 * time.Second // other tests run beside this one
		if clitest.Soak() {
			limit = 200 * time.Millisecond
		}
		if took := time.Since(began); took > limit {
			t.Errorf("the liveness endpoint was up after %v", took)
		}
		if err := p.AwaitBroker(ctx, "unix:"+sock); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Run(t, "receive", "q", "--count", "2", "--addr", "unix:"+sock).WantOut(t, "a\nb\n")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// A graceful stop ends although clients are connected and wait, and a receiver goes on when the broker is back.
func TestStopWithClients(t *testing.T) {
	dir := clitest.Dir(t)
	args := []string{"serve", "--journal", clitest.Journal(filepath.Join(dir, "data")), "--listen", "unix:" + filepath.Join(dir, "s"), "--http", ""}
	b := clitest.Start(t, clitest.Options{}, args...)
	b.Err.AwaitText(t, "broker serves")
	r := clitest.Start(t, clitest.Options{}, "receive", "q", "--addr", "unix:"+filepath.Join(dir, "s"), "--count", "2")
	clitest.Run(t, "send", "q", "one", "--addr", "unix:"+filepath.Join(dir, "s")).Want(t, 0)
	r.Out.AwaitText(t, "one\n")
	// It is printed before it is acknowledged.
	for tick := time.Tick(5 * time.Millisecond); !strings.Contains(clitest.Run(t, "queue", "describe", "q", "--output", "json", "--addr", "unix:"+filepath.Join(dir, "s")).Want(t, 0).Out, `"acked": 1`); {
		<-tick
	}
	b.Interrupt()
	b.Wait(t).WantErr(t, 0, "broker stopped")
	b = clitest.Start(t, clitest.Options{}, args...)
	clitest.Run(t, "send", "q", "two", "--addr", "unix:"+filepath.Join(dir, "s")).Want(t, 0)
	r.Wait(t).WantOut(t, "one\ntwo\n")
	b.Interrupt()
	b.Wait(t).Want(t, 0)
}

// Logs are structured: as JSON each line is an object.
func TestLogFormat(t *testing.T) {
	_, b := clitest.Serve(t, "--log-format", "json", "--log-level", "debug")
	b.Interrupt()
	r := b.Wait(t).Want(t, 0)
	if r.Out != "" {
		t.Errorf("standard output: %q", r.Out)
	}
	s := bufio.NewScanner(strings.NewReader(r.Err))
	for s.Scan() {
		var o struct{ Level, Msg string }
		if err := json.Unmarshal(s.Bytes(), &o); err != nil || o.Msg == "" || o.Level == "" {
			t.Errorf("%s: %v", s.Bytes(), err)
		}
	}
	clitest.Run(t, "version", "--log-level", "loud").WantErr(t, 2, "log level")
}

// pair is a certificate and its key, in files.
type pair struct{ cert, key string }

// certificate makes a certificate signed by parent, or a CA if parent is nil.
func certificate(t *testing.T, dir, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (pair, *x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")}
	for path, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: der}, p.key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p, cert, key
}

// listening returns the TCP address that a broker logs.
func listening(t *testing.T, b *clitest.Job) string {
	t.Helper()
	re := regexp.MustCompile(`msg=listening address=(127\.0\.0\.1:\d+)`)
	text := b.Err.Await(t, "the address", func(text string) bool { return re.MatchString(text) })
	return re.FindStringSubmatch(text)[1]
}

// TLS, client certificates and tokens with rights for queues, and their renewal while the broker runs.
func TestTLSAndTokens(t *testing.T) {
	dir := clitest.Dir(t)
	ca, caCert, caKey := certificate(t, dir, "ca", nil, nil)
	server, _, _ := certificate(t, dir, "server", caCert, caKey)
	ops, _, _ := certificate(t, dir, "ops", caCert, caKey)
	tokens := filepath.Join(dir, "tokens")
	const secret, later = "0123456789abcdef-first", "0123456789abcdef-later"
	policy := "token shop " + secret + " send orders*\ncert ops cn:ops send,receive,admin\n"
	if err := os.WriteFile(tokens, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	b := clitest.Start(t, clitest.Options{}, "serve", "--journal", "memory:", "--listen", "127.0.0.1:0", "--http", "",
		"--tls-cert", server.cert, "--tls-key", server.key, "--tls-client-ca", ca.cert, "--token-file", tokens)
	addr := listening(t, b)
	with := func(args ...string) []string {
		return append(args, "--addr", addr, "--tls-ca", ca.cert, "--timeout", "5s")
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, with("send", "orders", "x", "--token", secret)...).Want(t, 0)
	clitest.Run(t, with("send", "orders.eu", "x", "--token", "@"+token)...).Want(t, 0)
	clitest.Run(t, with("send", "other", "x", "--token", secret)...).WantErr(t, 1, "permission denied")
	clitest.Run(t, with("receive", "orders", "--count", "1", "--token", secret)...).WantErr(t, 1, "permission denied")
	clitest.Run(t, with("send", "orders", "x", "--token", "wrong")...).WantErr(t, 1, "the token is not known")
	clitest.Run(t, with("send", "orders", "x")...).WantErr(t, 1, "permission denied")
	clitest.Run(t, with("receive", "orders", "--count", "1", "--tls-cert", ops.cert, "--tls-key", ops.key)...).WantOut(t, "x\n")
	clitest.Run(t, with("queue", "delete", "orders.eu", "--yes", "--tls-cert", ops.cert, "--tls-key", ops.key)...).Want(t, 0)
	// Without trust in the CA there is no connection.
	clitest.Run(t, "send", "orders", "x", "--addr", addr, "--tls", "--token", secret, "--timeout", "3s").WantErr(t, 1, "certificate")

	// The files are read again by SIGHUP.
	if err := os.WriteFile(tokens, []byte(strings.Replace(policy, secret, later, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	renewed, _, _ := certificate(t, dir, "renewed", caCert, caKey)
	for from, to := range map[string]string{renewed.cert: server.cert, renewed.key: server.key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.Err.AwaitText(t, "certificates and token file read again")
	clitest.Run(t, with("send", "orders", "x", "--token", secret)...).WantErr(t, 1, "the token is not known")
	clitest.Run(t, with("send", "orders", "x", "--token", later)...).Want(t, 0)
	pool := x509.NewCertPool()
	pool.AddCert(caCert)
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if cn := c.ConnectionState().PeerCertificates[0].Subject.CommonName; cn != "renewed" {
		t.Errorf("the broker still presents %q", cn)
	}
	// What is wrong in the file leaves the old one in force.
	if err := os.WriteFile(tokens, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.Err.AwaitText(t, "certificates and token file are not changed")
	clitest.Run(t, with("send", "orders", "x", "--token", later)...).Want(t, 0)
}

// The administrative calls by HTTP and JSON, as curl makes them.
func TestAdminByHTTP(t *testing.T) {
	b := clitest.Start(t, clitest.Options{}, "serve", "--journal", "memory:", "--listen", "127.0.0.1:0", "--http", "")
	addr := listening(t, b)
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/holdfast.v1.Admin/Describe", bytes.NewReader([]byte(`{"name":"q"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var o struct {
		Queue struct{ Stats struct{ Depth string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil || o.Queue.Stats.Depth != "1" {
		t.Errorf("%+v %v", o, err)
	}
}
