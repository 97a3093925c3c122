package journals

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	var errs []error
	for _, f := range []struct {
		name string
		set  func(cli.Size)
	}{
		{"segment", func(s cli.Size) { so.SegmentBytes = int(s) }},
		{"reserve", func(s cli.Size) { so.ReserveBytes = int64(s) }},
		{"ballast", func(s cli.Size) { so.BallastBytes = int64(s) }},
		{"max-record", func(s cli.Size) { so.MaxRecordBytes = int(s) }},
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
		so.AcceptLoss = accept && !o.ReadOnly
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := u.leftOver(); err != nil {
		return nil, err
	}
	j, err := segment.Open(u.Place, so)
	if err != nil {
		return nil, err
	}
	return j, nil
}
