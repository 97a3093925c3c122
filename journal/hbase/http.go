package hbase

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/holdfastmq/holdfast/journal"
)

// dialHTTP makes connections to gateways in HTTP mode. The connections beneath belong to the HTTP client, which
// obeys contexts by itself and is closed by the returned function.
func dialHTTP(o *Options) (dial func(ctx context.Context, address string) (*conn, error), shut func(), err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: o.Connections, IdleConnTimeout: maxIdle, ForceAttemptHTTP2: false}
	if transport.TLSClientConfig, err = tlsConfig(o); err != nil {
		return nil, nil, err
	}
	client := &http.Client{Transport: transport}
	cfg := &thrift.TConfiguration{MaxMessageSize: maxMessage, MaxFrameSize: maxMessage}
	scheme := map[bool]string{false: "http", true: "https"}[o.HTTPS]
	dial = func(_ context.Context, address string) (*conn, error) {
		t, err := thrift.NewTHttpClientWithOptions(scheme+"://"+address+"/", thrift.THttpClientOptions{Client: client})
		if err != nil {
			return nil, err
		}
		if o.User != "" {
			t.(*thrift.THttpClient).SetHeader("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(o.User+":"+o.Password)))
		}
		c := newConn(t, cfg)
		c.close = func() { _ = t.Close() } // the last answer's body
		return c, nil
	}
	return dial, transport.CloseIdleConnections, nil
}

func tlsConfig(o *Options) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: option ca: %w", journal.ErrInvalid, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: option ca: %s has no PEM certificate", journal.ErrInvalid, o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: options cert and key: %w", journal.ErrInvalid, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
