package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// certificates is the broker's certificate, which can be read anew while it is in use.
type certificates struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
}

func (c *certificates) load() error {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read the broker's certificate: %w", err)
	}
	c.current.Store(&cert)
	return nil
}

// tlsConfig returns what the flags say about TLS, nil for none.
func (f *flags) tlsConfig() (*tls.Config, *certificates, error) {
	switch {
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return nil, nil, errors.New("--tls-cert and --tls-key go together")
	case f.tlsCert == "" && f.tlsClientCA != "":
		return nil, nil, errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	case f.tlsCert == "":
		return nil, nil, nil
	}
	c := &certificates{certFile: f.tlsCert, keyFile: f.tlsKey}
	if err := c.load(); err != nil {
		return nil, nil, err
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	if f.tlsClientCA != "" {
		pem, err := os.ReadFile(f.tlsClientCA)
		if err != nil {
			return nil, nil, fmt.Errorf("read the clients' CAs: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("read the clients' CAs: %s has no certificate in PEM", f.tlsClientCA)
		}
		// Who has a token needs no certificate; who has neither is refused by the policy, and without one here.
		config.ClientAuth = tls.VerifyClientCertIfGiven
		if f.policy == "" {
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return config, c, nil
}
