package journals

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/pebble"
)

func openPebble(_ context.Context, u *URL, o Options) (journal.Journal, error) {
	if u.Place == "" {
		return nil, fmt.Errorf("%w: pebble: without a directory", ErrURL)
	}
	po := pebble.Options{ReadOnly: o.ReadOnly, MustExist: o.MustExist || o.ReadOnly, Logger: o.Logger}
	if o.OnSync != nil {
		po.OnCommit = func(c pebble.Commit) { o.OnSync(c.Sync.Seconds(), c.Calls) }
	}
	err := u.sizes(
		sizeOption{"memtable", 1, cli.MaxSize, func(s cli.Size) { po.MemTableBytes = int(s) }},
		sizeOption{"cache", 1, cli.MaxSize, func(s cli.Size) { po.CacheBytes = int(s) }},
		sizeOption{"reserve", 1, cli.MaxSize, func(s cli.Size) { po.ReserveBytes = int64(s) }},
		sizeOption{"ballast", 1, cli.MaxSize, func(s cli.Size) { po.BallastBytes = int64(s) }},
		sizeOption{"max-record", 1, 1 << 30, func(s cli.Size) { po.MaxRecordBytes = int(s) }},
	)
	accept, wrong := u.flag("accept-loss")
	po.AcceptLoss = accept && !o.ReadOnly
	if err = errors.Join(err, wrong, u.leftOver(), checkReserve(u.Place, po.ReserveBytes)); err != nil {
		return nil, err
	}
	j, err := pebble.Open(u.Place, po)
	if err != nil {
		return nil, err
	}
	return j, nil
}
