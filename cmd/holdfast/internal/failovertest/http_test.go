package failovertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// get asks a broker's HTTP address.
func get(t *testing.T, m *member, path string) (code int, text string) {
	t.Helper()
	code, text = clitest.Get(t, strings.TrimPrefix(m.addr, "unix:")+"h", path)
	return code, strings.TrimSpace(text)
}

// Any broker says of any queue whether it can be used, where, and under which epoch; and metrics say how the brokers see each other.
func TestReadinessAndMetrics(t *testing.T) {
	b := start(t, onPostgres.journal(t), 2)
	clitest.Run(t, "send", "q", "x", "--addr", b.addrs()).Want(t, 0)
	b.settle("q")
	info := b.describe("q")
	for _, m := range b.all {
		if code, text := get(t, m, "/readyz?queue=q"); code != 200 || text != fmt.Sprintf("ready at %s, epoch %d", info.Owner, info.Epoch) {
			t.Errorf("%d %s, and it is described as %+v", code, text, info)
		}
		if code, text := get(t, m, "/readyz?queue=none"); code != 503 || !strings.Contains(text, "no such queue") {
			t.Errorf("%d %s", code, text)
		}
		await(t, "two brokers that see each other", func() bool {
			code, text := get(t, m, "/readyz")
			return code == 200 && strings.HasSuffix(text, "2 brokers share the journal")
		})
		_, text := get(t, m, "/metrics")
		for _, want := range []string{`holdfast_cluster_members{state="live"} 2` + "\n", "holdfast_cluster_valid 1\n", "holdfast_cluster_lapses_total ", "holdfast_cluster_fenced_total "} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("metrics without %q", want)
			}
		}
	}
	out := clitest.Run(t, "queue", "describe", "q", "--addr", b.addrs()).Want(t, 0)
	if !strings.Contains(out.Out, info.Owner) || !strings.Contains(out.Out, "epoch") {
		t.Errorf("described as %s", out.Out)
	}
	clitest.Run(t, "queue", "delete", "q", "--yes", "--addr", b.addrs()).Want(t, 0)
	for _, m := range b.all {
		if code, text := get(t, m, "/readyz?queue=q"); code != 503 || !strings.Contains(text, "no such queue") {
			t.Errorf("after it was deleted: %d %s", code, text)
		}
	}
}
