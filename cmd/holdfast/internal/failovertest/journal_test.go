package failovertest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// Issue: verify, dump and copy work on every driver, as the source and as the target: what comes back from an embedded store is what went there.
func TestJournalCommands(t *testing.T) { each(t, journalCommands, onMongoDB.name) }

func journalCommands(t *testing.T, on store) {
	url, again := on.journal(t), on.journal(t)
	for _, u := range []string{url, again} {
		if err := openJournal(t, u).Close(); err != nil {
			t.Fatal(err)
		}
	}
	between := "segment:" + filepath.Join(clitest.Dir(t), "store")
	for _, body := range []string{"alpha", "beta", strings.Repeat("gamma", 10_000), "delta"} {
		clitest.Run(t, "send", "q", body, "--journal", url).Want(t, 0)
	}
	if r := clitest.Run(t, "receive", "q", "--count", "1", "--journal", url).Want(t, 0); !strings.Contains(r.Out, "alpha") {
		t.Errorf("received %q", r.Out)
	}
	verify := func(url string) {
		t.Helper()
		if r := clitest.Run(t, "journal", "verify", url).WantErr(t, 0, "1 streams are intact"); !strings.Contains(r.Out, ", 3 messages, ") {
			t.Error(r.Out)
		}
	}
	dump := func(url string) string {
		t.Helper()
		_, records, _ := strings.Cut(clitest.Run(t, "journal", "dump", url, "--bodies").Want(t, 0).Out, "\n") // the first line has the epoch
		return records
	}
	verify(url)
	clitest.Run(t, "journal", "copy", url, between).WantErr(t, 0, "1 streams are copied")
	clitest.Run(t, "journal", "copy", between, again).WantErr(t, 0, "1 streams are copied")
	verify(again)
	want := dump(url)
	if !strings.Contains(want, `"crc"`) || !strings.Contains(want, `"deleted"`) {
		t.Errorf("dump shows\n%.3000s", want)
	}
	for _, u := range []string{between, again} {
		if got := dump(u); got != want {
			t.Errorf("the source has\n%.3000s\nthe copy\n%.3000s", want, got)
		}
	}
	peek := func(url string) string {
		return clitest.Run(t, "queue", "peek", "q", "--output", "json", "--journal", url).Want(t, 0).Out
	}
	if a, b := peek(url), peek(again); a != b || !strings.Contains(a, `"id"`) {
		t.Errorf("the source has\n%.3000s\nthe copy\n%.3000s", a, b)
	}
}
