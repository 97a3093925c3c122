package journals

import (
	"context"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/cassandra"
)

func openCassandra(ctx context.Context, u *URL, o Options) (journal.Journal, error) {
	co, err := cassandra.ParseURL(u.whole())
	if err != nil {
		return nil, err
	}
	co.ReadOnly, co.Logger = o.ReadOnly, o.Logger
	j, err := cassandra.Open(ctx, co)
	if err != nil {
		return nil, err
	}
	return j, nil
}
