package journals

import (
	"context"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

func openMemory(_ context.Context, u *URL, _ Options) (journal.Journal, error) {
	if u.Place != "" {
		return nil, fmt.Errorf("%w: memory: with %q behind it", ErrURL, u.Place)
	}
	return memory.New(), nil
}
