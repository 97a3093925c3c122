package hbase

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// unreachableError says that no gateway could be dialed: nothing was sent.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string {
	return fmt.Sprintf("no gateway can be reached: see that \"hbase thrift2 start\" runs there, and that host and port in the URL are its: %v", e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// timeoutError says that a call took longer than [Options.Timeout].
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("the gateway did not answer within %v: %v", e.after, e.err)
}

func (e *timeoutError) Unwrap() error { return e.err }

// explain adds to an error of a call what to change, where that can be told. What comes from behind the gateway is text of
// HBase's, cut to its first line.
func (o *Options) explain(err error) error {
	var io *thrift2.TIOError
	var app thrift.TApplicationException
	switch {
	case err == nil:
		return nil
	case errors.As(err, &io):
		text, _, _ := strings.Cut(strings.TrimSpace(io.GetMessage()), "\n")
		return o.explainHBase(text)
	case errors.As(err, &app) && app.TypeId() == thrift.UNKNOWN_METHOD:
		return fmt.Errorf("it is no Thrift2 gateway (%w): start one by \"hbase thrift2 start\"; \"hbase thrift start\" is another protocol", err)
	case errors.As(err, &app) && app.TypeId() == thrift.INTERNAL_ERROR:
		return fmt.Errorf("the gateway refused the call without a reason (%w): see its log; if cells are too large (hbase.client.keyvalue.maxsize there), "+
			"set max-record in the URL below that", err)
	}
	return err
}

// denied is how HBase says that rights are missing.
func denied(text string) bool {
	return strings.Contains(text, "AccessDenied") || strings.Contains(text, "nsufficient permissions")
}

// full is how HBase says that a space quota is used up.
func full(text string) bool {
	return strings.Contains(text, "SpaceLimitingException")
}

func (o *Options) explainHBase(text string) error {
	if text == "" {
		text = "an error without a text"
	}
	err := &hbaseError{text: text}
	switch {
	case denied(text):
		err.advice = fmt.Sprintf("the user that the gateway runs as lacks rights: grant them in the HBase shell (grant 'USER', 'RWXC', '%s')", o.Table)
	case full(text):
		err.advice = "a space quota is used up: raise it or free space"
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	case strings.Contains(text, "TableNotFoundException"):
		err.advice = fmt.Sprintf("table %s is gone: it was deleted since the journal was opened, and so was what it held", o.Table)
	case strings.Contains(text, "TableNotEnabledException"), strings.Contains(text, "is disabled"):
		err.advice = fmt.Sprintf("table %s is disabled: enable '%s' in the HBase shell", o.Table, o.Table)
	case strings.Contains(text, "NamespaceNotFoundException"):
		ns, _, _ := strings.Cut(o.Table, ":")
		err.advice = fmt.Sprintf("there is no such namespace: create_namespace '%s' in the HBase shell", ns)
	case strings.Contains(strings.ToLower(text), "zookeeper"):
		err.advice = "the gateway cannot reach HBase: see that HBase runs"
	}
	return err
}

// hbaseError is what HBase said, with what to do about it.
type hbaseError struct{ text, advice string }

func (e *hbaseError) Error() string {
	if e.advice == "" {
		return "HBase: " + e.text
	}
	return fmt.Sprintf("%s (HBase: %s)", e.advice, e.text)
}

// unknown makes an error of a change that may have taken effect.
func unknown(errs ...error) error {
	err := errors.Join(errs...)
	if errors.Is(err, journal.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnknown, oneLine(err))
}

// oneLine shows joined errors in a line.
func oneLine(err error) error {
	if text := err.Error(); strings.Contains(text, "\n") {
		return &shortError{err, strings.ReplaceAll(text, "\n", "; ")}
	}
	return err
}

type shortError struct {
	err  error
	line string
}

func (e *shortError) Error() string { return e.line }
func (e *shortError) Unwrap() error { return e.err }
