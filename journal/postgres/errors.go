package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastmq/holdfast/journal"
)

// ErrReadOnly refuses changes of a journal that was opened with Options.ReadOnly.
var ErrReadOnly = errors.New("journal opened for reading only")

// SQLSTATE codes that the driver knows.
const (
	codeUniqueViolation = "23505"
	codeUndefinedTable  = "42P01"
	codeInternal        = "XX000"
	codeDiskFull        = "53100"
	codePrivilege       = "42501"
	codeLockTimeout     = "55P03"
	codeDeadlock        = "40P01"
)

// code returns the SQLSTATE of an answer of the server, or "".
func code(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// isGone tells whether a statement failed because a table that it names has been dropped: its rows are
// dead, or in another table by now.
func isGone(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	// The second is what a statement meets that waited for a lock while the table was dropped.
	return pe.Code == codeUndefinedTable || pe.Code == codeInternal && strings.Contains(pe.Message, "could not open relation")
}

// isLost tells whether err is one of the connection, rather than an answer to the statement.
func isLost(err error) bool {
	if c := code(err); c != "" {
		return strings.HasPrefix(c, "57P") || strings.HasPrefix(c, "08")
	}
	var ne net.Error
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// unknown says that a change may or may not have taken effect.
func unknown(err error) error { return fmt.Errorf("%w: %w", journal.ErrUnknown, err) }

// changeError makes of a failed statement what the contract says of changes.
func changeError(err error) error {
	if code(err) == codeDiskFull {
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	}
	return unknown(err)
}

// explain adds to the error of a connection attempt what is to be changed.
func explain(err error, place, user, database string) error {
	var pe *pgconn.PgError
	var hostErr *net.DNSError
	var opErr *net.OpError
	advice := ""
	switch {
	case errors.As(err, &pe):
		advice = explainCode(pe, user, database)
	case isTLS(err):
		advice = "the server's certificate is not accepted: name its authority with sslrootcert=FILE, and the host as the certificate does"
	case strings.Contains(err.Error(), "server refused TLS"):
		advice = "the server does not speak TLS: switch it on there (ssl = on), or, on a network that you trust, connect with sslmode=disable"
	case errors.As(err, &hostErr):
		advice = fmt.Sprintf("the host of %s is not known: correct the URL", place)
	case errors.Is(err, context.DeadlineExceeded):
		advice = fmt.Sprintf("%s does not answer: check the host, the port and what filters packets on the way", place)
	case errors.As(err, &opErr):
		advice = fmt.Sprintf("nothing listens at %s: check the host and the port, and that the server runs", place)
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%s (%w)", advice, err)
}

func isTLS(err error) bool {
	var unknownCA x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	return errors.As(err, &unknownCA) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verify)
}

func explainCode(pe *pgconn.PgError, user, database string) string {
	switch pe.Code {
	case "28P01":
		return fmt.Sprintf("the server refuses the password of role %q: correct the user or the password in the URL", user)
	case "28000":
		return fmt.Sprintf("the server does not let role %q in: make the role, or allow it in pg_hba.conf", user)
	case "3D000":
		return fmt.Sprintf("there is no database %q: make it (CREATE DATABASE %s), or correct the URL", database, database)
	case "53300":
		return "the server has no connection left: lower pool= in the URL, or raise max_connections"
	case "57P03":
		return "the server is starting or stopping: try again"
	case codePrivilege:
		return fmt.Sprintf("role %q may not do this", user)
	}
	return ""
}
