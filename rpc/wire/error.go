package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Code says what kind of error an [Error] is. Values are never reused.
type Code uint8

// The codes.
const (
	CodeInternal     Code = 1  // a fault of the broker
	CodeProtocol     Code = 2  // what was received breaks the protocol; the connection ends
	CodeInvalid      Code = 3  // bad input: Field, Fault and Limit say what is wrong
	CodeDenied       Code = 4  // the caller does not have the right
	CodeNoQueue      Code = 5  // the queue does not exist
	CodeQueueExists  Code = 6  // the queue exists with another configuration
	CodeFull         Code = 7  // the queue is at its maximum
	CodeStorageFull  Code = 8  // the store under the queue has no room
	CodeFenced       Code = 9  // another broker owns the queue; Address is where, if known
	CodeUnavailable  Code = 10 // at present, or at this broker; try again
	CodeGap          Code = 11 // out of sequence: Want and Got are producer seqs
	CodeClosed       Code = 12 // closed by the other side
	CodeLeaseLost    Code = 13 // the receiver does not hold the message
	CodeUnknownState Code = 14 // may or may not have been done
	CodeCanceled     Code = 15 // given up by the caller
)

var codeNames = [...]string{
	CodeInternal: "internal", CodeProtocol: "protocol", CodeInvalid: "invalid", CodeDenied: "denied",
	CodeNoQueue: "no queue", CodeQueueExists: "queue exists", CodeFull: "full", CodeStorageFull: "storage full",
	CodeFenced: "fenced", CodeUnavailable: "unavailable", CodeGap: "gap", CodeClosed: "closed",
	CodeLeaseLost: "lease lost", CodeUnknownState: "unknown", CodeCanceled: "canceled",
}

// String returns the name of the code.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// Error is an error as it travels. Fields that its code does not name are empty.
type Error struct {
	Code    Code
	Message string // for people; may be empty where Field and Fault say it
	Field   string // what is wrong
	Fault   string // how
	Limit   string // what would be right, empty where there is none
	Address string // of the broker to ask instead
	Want    uint64 // CodeGap
	Got     uint64 // CodeGap
}

// Error returns the message, or what the other fields say.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Field != "" && e.Limit != "":
		return fmt.Sprintf("%s %s (limit: %s)", e.Field, e.Fault, e.Limit)
	case e.Field != "":
		return e.Field + " " + e.Fault
	}
	return e.Code.String()
}

func malformed(field, format string, args ...any) *Error {
	return &Error{Code: CodeProtocol, Field: field, Fault: fmt.Sprintf(format, args...)}
}

// clip shortens what a person reads to what the protocol carries, whole characters of it.
func clip(s string) string {
	const limit = 1024
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

func appendError(b []byte, e *Error) []byte {
	b = append(b, byte(e.Code))
	for _, s := range []string{e.Message, e.Field, e.Fault, e.Limit, e.Address} {
		b = appendString(b, clip(s))
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, e.Want), e.Got)
}

func (r *reader) error() *Error {
	e := &Error{Code: Code(r.byte("error code"))}
	for _, f := range []*string{&e.Message, &e.Field, &e.Fault, &e.Limit, &e.Address} {
		*f = r.string("error")
	}
	e.Want, e.Got = r.uvarint("wanted seq"), r.uvarint("given seq")
	if r.err == nil && e.Code == 0 {
		r.fail("error code", "is 0")
	}
	return e
}
