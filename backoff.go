package holdfast

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

const (
	retryFirst = 20 * time.Millisecond
	retryCap   = 5 * time.Second
)

// backoff yields growing pauses with jitter, of at most retryCap. The zero value begins anew.
type backoff struct{ tries int }

// next returns the pause before the next try.
func (b *backoff) next() time.Duration {
	d := retryCap
	if b.tries < 10 {
		d = min(d, retryFirst<<b.tries)
		b.tries++
	}
	// Between half and all of it, so that clients that lost the same broker do not come back all at once.
	return d/2 + rand.N(d/2+1)
}

func (b *backoff) reset() { b.tries = 0 }

// permanent tells whether opening a stream failed for a reason that trying again does not change.
func permanent(err error) bool {
	var field *message.FieldError
	return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrDenied) || errors.Is(err, ErrClosed) || errors.As(err, &field)
}
