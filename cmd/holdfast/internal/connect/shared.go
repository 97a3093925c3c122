package connect

import (
	"context"
	"strings"

	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
)

// unserved refuses a journal that brokers serve: working on it directly would take its queues from them.
func (f *Flags) unserved(ctx context.Context, j journal.Journal) error {
	coord, ok := j.(journal.Coordinator)
	if !ok || !journals.Shared(f.journal) {
		return nil
	}
	addrs, err := cluster.Serving(ctx, coord, 0)
	if err != nil || len(addrs) == 0 {
		return err
	}
	return cli.Usagef("brokers serve this journal, and working on it directly would take its queues from them: use --addr %s instead of --journal", strings.Join(addrs, ","))
}
