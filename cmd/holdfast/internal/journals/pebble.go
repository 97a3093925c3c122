package journals

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	var errs []error
	for _, f := range []struct {
		name string
		set  func(cli.Size)
	}{
		{"memtable", func(s cli.Size) { po.MemTableBytes = int(s) }},
		{"cache", func(s cli.Size) { po.CacheBytes = int(s) }},
		{"reserve", func(s cli.Size) { po.ReserveBytes = int64(s) }},
		{"ballast", func(s cli.Size) { po.BallastBytes = int64(s) }},
		{"max-record", func(s cli.Size) { po.MaxRecordBytes = int(s) }},
	} {
		text, ok := u.option(f.name)
		if !ok {
			continue
		}
		var s cli.Size
		if err := s.Set(text); err != nil {
			errs = append(errs, fmt.Errorf("option %s: %w", f.name, err))
			continue
		}
		f.set(s)
	}
	if text, ok := u.option("accept-loss"); ok {
		accept, err := strconv.ParseBool(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("option accept-loss: %q is not true or false", text))
		}
		po.AcceptLoss = accept && !o.ReadOnly
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := u.leftOver(); err != nil {
		return nil, err
	}
	j, err := pebble.Open(u.Place, po)
	if err != nil {
		return nil, err
	}
	return j, nil
}
