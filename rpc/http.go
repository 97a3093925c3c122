package rpc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1/holdfastv1connect"
	"github.com/holdfastmq/holdfast/rpc/wire"

	"connectrpc.com/connect"
)

const (
	// DataPath is the path of the request that becomes a data connection.
	DataPath = "/holdfast"
	// maxAdminBytes bounds a request of an administrative call.
	maxAdminBytes  = 4 << 20
	maxHeaderBytes = 16 << 10
)

type identityKey struct{}

// identity returns who makes a request. The nil identity may do everything.
func identity(ctx context.Context) *access.Identity {
	id, _ := ctx.Value(identityKey{}).(*access.Identity)
	return id
}

// handler routes requests: administrative calls, data, others.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	path, admin := holdfastv1connect.NewAdminHandler(adminService{s}, connect.WithReadMaxBytes(maxAdminBytes))
	mux.Handle(path, s.authenticated(admin))
	mux.Handle(DataPath, s.authenticated(http.HandlerFunc(s.serveData)))
	if s.o.Other != nil {
		mux.Handle("/", s.o.Other)
	}
	return mux
}

// authenticated lets through whom the policy knows.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.fromPeer(r) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, true)))
			return
		}
		policy := s.policy.Load()
		if policy == nil {
			if err := s.fromHere(r); err != nil {
				s.unauthorized.Add(1)
				refuse(w, http.StatusForbidden, wire.CodeDenied, err)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		id, err := identify(policy, r)
		if err != nil {
			s.unauthorized.Add(1)
			s.warnings.say(s.log, "client refused", "remote", r.RemoteAddr, "error", err)
			w.Header().Set("WWW-Authenticate", `Bearer realm="holdfast"`)
			refuse(w, http.StatusUnauthorized, wire.CodeDenied, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
}

type peerKey struct{}

// isPeer tells that a request comes from another broker of the same journal.
func isPeer(ctx context.Context) bool { return ctx.Value(peerKey{}) != nil }

// fromPeer tells the same of a request that was not let through yet.
func (s *Server) fromPeer(r *http.Request) bool {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.o.PeerToken != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(s.o.PeerToken)) == 1
}

// peerFrameBytes is by how much a frame of another broker may be larger: it may say where its message has been before.
const peerFrameBytes = 64 << 10

// linkOf returns the link that the maker of a request is let at.
func (s *Server) linkOf(ctx context.Context) holdfast.Link {
	if isPeer(ctx) {
		return s.o.PeerLink
	}
	return s.link
}

// identify returns whom the policy knows the client as: by its token, else by its certificate.
func identify(p *access.Policy, r *http.Request) (*access.Identity, error) {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, secret, _ := strings.Cut(h, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("%w: the Authorization header is not a bearer token", holdfast.ErrDenied)
		}
		if id := p.Token(strings.TrimSpace(secret)); id != nil {
			return id, nil
		}
		return nil, fmt.Errorf("%w: the token is not known", holdfast.ErrDenied)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if id := p.Certificate(r.TLS.VerifiedChains[0][0]); id != nil {
			return id, nil
		}
		return nil, fmt.Errorf("%w: the certificate of %q is not known", holdfast.ErrDenied, r.TLS.VerifiedChains[0][0].Subject.CommonName)
	}
	return nil, fmt.Errorf("%w: there is neither a token nor a client certificate", holdfast.ErrDenied)
}

// fromHere refuses what a browser sends on behalf of a page from elsewhere, to a server that asks nobody who they are: pages of
// other origins, and such whose name was made to point at this machine.
func (s *Server) fromHere(r *http.Request) error {
	if s.o.Insecure {
		return nil
	}
	if err := s.origins.Check(r); err != nil {
		return fmt.Errorf("%w: %w", holdfast.ErrDenied, err)
	}
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || net.ParseIP(host) != nil {
		return nil
	}
	return fmt.Errorf("%w: without a policy, requests must name this host by its address or as localhost, not as %q", holdfast.ErrDenied, host)
}

// refuse answers a request with an error as connect would, which is JSON for people and programs.
func refuse(w http.ResponseWriter, code int, kind wire.Code, err error) {
	word := map[int]string{
		http.StatusUnauthorized: "unauthenticated", http.StatusForbidden: "permission_denied",
		http.StatusServiceUnavailable: "unavailable",
	}[code]
	if word == "" {
		word = "invalid_argument"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{"code": word, "message": err.Error(), "kind": kind.String()})
}

var errNoUpgrade = errors.New("this is where data connections begin: the request must be a GET by HTTP/1.1 with Connection: Upgrade and Upgrade: " + wire.Protocol)

// wantsUpgrade checks that a request asks for the protocol. unknown tells that it asks for versions that this server
// does not speak.
func wantsUpgrade(r *http.Request) (unknown bool, err error) {
	if r.Method != http.MethodGet || r.ProtoMajor != 1 || !hasToken(r.Header, "Connection", "upgrade") {
		return false, errNoUpgrade
	}
	switch {
	case hasToken(r.Header, "Upgrade", wire.Protocol):
		return false, nil
	case r.Header.Get("Upgrade") == "":
		return false, errNoUpgrade
	}
	return true, fmt.Errorf("the client asks for %q, this broker speaks %s", r.Header.Get("Upgrade"), wire.Protocol)
}

// hasToken looks for a word in a header that lists some.
func hasToken(h http.Header, name, word string) bool {
	for _, line := range h.Values(name) {
		for s := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(s), word) {
				return true
			}
		}
	}
	return false
}
