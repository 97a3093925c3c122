package journals

import (
	"context"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/mongodb"
)

func openMongoDB(ctx context.Context, u *URL, o Options) (journal.Journal, error) {
	j, err := mongodb.Open(ctx, u.whole(), mongodb.Options{ReadOnly: o.ReadOnly, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return j, nil
}
