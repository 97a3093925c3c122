package journals

import (
	"context"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/jetstream"
)

func openNATS(ctx context.Context, u *URL, o Options) (journal.Journal, error) {
	j, err := jetstream.Open(ctx, u.whole(), jetstream.Options{ReadOnly: o.ReadOnly, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return j, nil
}
