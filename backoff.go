package holdfast

import (
	"errors"
	"math/rand/v2"
	"sync"
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

// rateLimit holds back lines of a log.
type rateLimit struct {
	mu   sync.Mutex
	last time.Time
	held int
}

// allow tells whether a line may be written now, and how many were held back since the last one.
func (r *rateLimit) allow(every time.Duration) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < every {
		r.held++
		return 0, false
	}
	held, r.held, r.last = r.held, 0, now
	return held, true
}

// permanent tells whether opening a stream failed for a reason that trying again does not change.
func permanent(err error) bool {
	var field *message.FieldError
	return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrDenied) || errors.Is(err, ErrClosed) || errors.As(err, &field)
}
