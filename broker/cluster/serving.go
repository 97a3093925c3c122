package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/journal"
)

// Serving returns the addresses of brokers that are seen to renew their entries, at once if there are no entries, and after a moment if
// one is renewed. It returns none if for as long as expiry (0: the default) none was. It is for programs that use a journal without
// becoming a member, and must not take queues from brokers.
func Serving(ctx context.Context, c journal.Coordinator, expiry time.Duration) ([]string, error) {
	if expiry == 0 {
		expiry = DefaultExpiry
	}
	first := map[string]placement.Entry{}
	for began := time.Now(); ; {
		all, err := c.Members(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for brokers: %w", err)
		}
		var live []string
		for id, b := range all {
			e, err := placement.Decode(b)
			if err != nil {
				continue
			}
			was, ok := first[id]
			if !ok {
				first[id] = e
			} else if was.Beat != e.Beat || was.Incarnation != e.Incarnation {
				live = append(live, e.Address)
			}
		}
		slices.Sort(live)
		if len(live) > 0 || len(first) == 0 || time.Since(began) > expiry {
			return live, nil
		}
		if !pause(ctx, expiry/12, nil) {
			return nil, fmt.Errorf("look for brokers: %w", context.Cause(ctx))
		}
	}
}
