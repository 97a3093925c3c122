package journals

import (
	"context"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/postgres"
)

func openPostgres(ctx context.Context, u *URL, o Options) (journal.Journal, error) {
	j, err := postgres.Open(ctx, u.whole(), postgres.Options{ReadOnly: o.ReadOnly, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return j, nil
}
