package jetstream

import (
	"context"
	"errors"

	"github.com/holdfastmq/holdfast/journal"
)

// ballastBytes is the size of a message that means nothing but room: where a limit of the stream, the account or the server is reached, it is deleted,
// so that discards and records without bodies (deletes are such) can be stored, which give back space.
const ballastBytes = 256 << 10

// layBallast stores the ballast if it is not there and there is room.
func (j *Journal) layBallast(ctx context.Context) {
	_, err := j.c.publish(ctx, message{
		subject: j.names.ballast(), data: [][]byte{make([]byte, ballastBytes)}, cond: j.names.ballast(), last: 0,
	})
	// It is there, also if the condition says so; without room or an answer the next one tries again.
	if err == nil || errors.Is(err, errMismatch) {
		j.light.Store(false)
	}
}

// dropBallast makes room after err, if it says that there is none. It tells whether it did.
func (j *Journal) dropBallast(ctx context.Context, err error) bool {
	if !errors.Is(err, journal.ErrFull) {
		return false
	}
	m, err := j.c.get(ctx, getRequest{Last: j.names.ballast()})
	if err != nil || m == nil {
		return false
	}
	j.light.Store(true)
	return j.c.purge(ctx, j.names.ballast(), m.seq+1) == nil
}
