package hbase

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// keyStore makes a Java key store with a certificate for 127.0.0.1, and the certificate as a PEM file.
func keyStore(t *testing.T) (store, ca string) {
	t.Helper()
	dir := t.TempDir()
	store, ca = filepath.Join(dir, "keys"), filepath.Join(dir, "ca.pem")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("keytool", args...).CombinedOutput(); err != nil {
			t.Fatalf("keytool, which comes with the JDK: %v: %s", err, out)
		}
	}
	run("-genkeypair", "-alias", "gateway", "-keyalg", "EC", "-dname", "CN=gateway", "-ext", "SAN=IP:127.0.0.1", "-validity", "30",
		"-keystore", store, "-storepass", "holdfast", "-keypass", "holdfast", "-storetype", "PKCS12")
	run("-exportcert", "-rfc", "-alias", "gateway", "-keystore", store, "-storepass", "holdfast", "-file", ca)
	return store, ca
}

// §4, G11: a gateway in HTTP mode with TLS, an HBase that checks rights, and one that does not sync, all in one server.
func TestOtherServer(t *testing.T) {
	store, ca := keyStore(t)
	s := startOwn(t, "HBASE_VERSION=2.6.1", "HBASE_HTTPS="+store, "HBASE_AUTHORIZE=stranger")
	o := testOptions(t, s)
	wantOpenError(t, o, "set ca=FILE to the certificate of who has signed it")
	plain := o
	plain.HTTPS, plain.HTTP = false, true
	wantOpenError(t, plain, "https=true if in HTTP mode")
	o.CAFile = filepath.Join(t.TempDir(), "none")
	wantOpenError(t, o, "option ca: open ")
	o.CAFile = ca
	wantOpenError(t, o, "the gateway's user may not create it; in the HBase shell: create '"+o.Table+"'")

	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	comeAs(t, s, me.Username)
	framed := o
	framed.BucketRecords = 4
	runRules(t, framed, []string{"append/stores", "limits/record", "context/cut", "close/under-way", "close/ends-all", "race/two-owners-flaky", "members/concurrent"}, true)
	if n := syncsOfAppends(t, s, o); n >= loneAppends {
		t.Errorf("%d fsync calls in %d appends on a server that makes none", n, loneAppends)
	}
	comeAs(t, s, "stranger")
	wantOpenError(t, o, "lacks rights: grant them in the HBase shell (grant 'USER', 'RWXC', '"+o.Table+"')")
}

// comeAs starts the gateway anew as another user of HBase's.
func comeAs(t *testing.T, s *testserver.Server, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir(), "gateway.user"), []byte(name), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill("gateway"); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}
