package journals

import (
	"context"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase"
)

// openHBase leaves the URL to the driver, which knows its options and refuses others.
func openHBase(ctx context.Context, u *URL, o Options) (journal.Journal, error) {
	ho, err := hbase.ParseURL(u.whole())
	if err != nil {
		return nil, err
	}
	ho.ReadOnly, ho.Logger = o.ReadOnly, o.Logger
	j, err := hbase.Open(ctx, ho)
	if err != nil {
		return nil, err
	}
	return j, nil
}
