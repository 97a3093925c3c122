package journals

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment"
)

func openSegment(_ context.Context, u *URL, o Options) (journal.Journal, error) {
	if u.Place == "" {
		return nil, fmt.Errorf("%w: segment: without a directory", ErrURL)
	}
	so := segment.Options{ReadOnly: o.ReadOnly, MustExist: o.MustExist || o.ReadOnly, Logger: o.Logger}
	if o.OnSync != nil {
		so.OnCommit = func(c segment.Commit) { o.OnSync(c.Sync.Seconds(), c.Calls) }
	}
	err := u.sizes(
		sizeOption{"segment", 64 << 10, 1 << 30, func(s cli.Size) { so.SegmentBytes = int(s) }},
		sizeOption{"reserve", 1, cli.MaxSize, func(s cli.Size) { so.ReserveBytes = int64(s) }},
		sizeOption{"ballast", 1, cli.MaxSize, func(s cli.Size) { so.BallastBytes = int64(s) }},
		sizeOption{"max-record", 1, 1 << 30, func(s cli.Size) { so.MaxRecordBytes = int(s) }},
	)
	accept, wrong := u.flag("accept-loss")
	so.AcceptLoss = accept && !o.ReadOnly
	if err = errors.Join(err, wrong, u.leftOver(), checkReserve(u.Place, so.ReserveBytes)); err != nil {
		return nil, err
	}
	j, err := segment.Open(u.Place, so)
	if err != nil {
		return nil, err
	}
	return j, nil
}
