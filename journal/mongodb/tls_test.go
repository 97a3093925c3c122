package mongodb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// §10: TLS, with the server's own authority, from the URL; and what is wrong with it is told.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	s := startOwn(t, "MONGODB_CERT="+cert, "MONGODB_KEY="+key)
	url := s.URL() + "/t?durable=declared"
	refused(t, url+"&timeoutMS=1000", nil, "speaks TLS; add tls=true to the URL")
	refused(t, url+"&timeoutMS=1000&tls=true", nil, "fails; correct tls, tlsCAFile", "unknown authority")
	w := acquire(t, mustOpen(t, url+"&tls=true&tlsCAFile="+cert, quiet()), "orders")
	if err := w.append(t.Context(), w.next(1, nil)); err != nil {
		t.Error(err)
	}
	refused(t, server.URL()+"/t?durable=declared&timeoutMS=1000&tls=true", nil, "fails; correct tls, tlsCAFile")
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
