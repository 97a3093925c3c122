package mongodb

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfastmq/holdfast/journal"
)

// errNoAnswer says that a request may or may not have had its effect.
var errNoAnswer = errors.New("no answer")

// errAway says that no server was found.
var errAway = errors.New("no server that can be written to answers; correct the hosts (and replicaSet) in the URL, or start the server")

// errTaken says that there is a document of that _id. Nothing was stored.
var errTaken = errors.New("number is taken")

// adviceError says what to change. Nothing was stored.
type adviceError struct {
	advice string
	err    error
}

func (e *adviceError) Error() string { return fmt.Sprintf("%s: %v", e.advice, e.err) }
func (e *adviceError) Unwrap() error { return e.err }

// Codes of the server, for what is not stored for sure.
const (
	codeUnauthorized = 13
	codeAuthFailed   = 18
	codeTooLarge     = 10334
	codeNoDiskSpace  = 14031
	codeAtlas        = 8000
)

// classify turns an error of the client into one of the driver: errTaken, adviceError, journal.ErrFull and journal.ErrTooLarge where nothing is stored,
// errNoAnswer for all that may be otherwise.
func classify(err error) error {
	var we mongo.WriteException
	var se mongo.ServerError
	var told *adviceError
	switch {
	case err == nil, errors.Is(err, errNoAnswer), errors.As(err, &told):
		return err
	case errors.Is(err, mongo.ErrNoDocuments):
		return err
	case errors.As(err, &we) && we.WriteConcernError != nil:
		return fmt.Errorf("%w: %w", errNoAnswer, err) // applied, perhaps not by a majority
	case mongo.IsDuplicateKeyError(err):
		return fmt.Errorf("%w: %w", errTaken, err)
	case errors.As(err, &se):
		switch {
		case se.HasErrorCodeWithMessage(codeUnauthorized, "requires authentication"):
			return &adviceError{"the server wants a user and a password; write mongodb://USER:PASSWORD@…", err}
		case se.HasErrorCode(codeUnauthorized):
			return &adviceError{"the user lacks a right; give it the role readWrite on the database", err}
		case se.HasErrorCode(codeAuthFailed):
			return &adviceError{"the server refuses the user or its password; correct them in the URL, or authSource", err}
		case se.HasErrorCode(codeTooLarge):
			return fmt.Errorf("%w: %w", journal.ErrTooLarge, err)
		case se.HasErrorCode(codeNoDiskSpace), se.HasErrorCodeWithMessage(codeAtlas, "space quota"):
			return fmt.Errorf("%w: %w", journal.ErrFull, err)
		}
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// unknown makes errors of which nothing is known for sure say so.
func unknown(err error) error {
	if err == nil || errors.Is(err, journal.ErrUnknown) {
		return err
	}
	if errors.Is(err, errNoAnswer) || errors.Is(err, errTaken) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", journal.ErrUnknown, err)
	}
	return err
}
