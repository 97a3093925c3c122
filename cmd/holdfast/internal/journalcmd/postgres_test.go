package journalcmd_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// A store is copied into PostgreSQL and back, verified and shown there, and the messages have their ids and counts again; a schema without a
// journal is not made by looking at it.
func TestPostgres(t *testing.T) {
	server, err := testserver.Start("postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	dir, url := store(t)
	there := fmt.Sprintf("%s?schema=journalcmd_%d", server.URL(), time.Now().UnixNano())
	back := clitest.Journal(filepath.Join(filepath.Dir(dir), "back"))
	for _, command := range []string{"verify", "dump"} {
		clitest.Run(t, "journal", command, there).WantErr(t, 1, "holds no journal")
	}
	clitest.Run(t, "journal", "copy", url, there).WantErr(t, 0, "2 streams are copied")
	r := clitest.Run(t, "journal", "verify", there).WantErr(t, 0, "2 streams are intact")
	if !regexp.MustCompile(`(?m)^ok\tqueue/full\tepoch \d+, seqs \d+ to \d+, snapshot at \d+, \d+ records, \d+ events, 2 messages, 1 bodies`).MatchString(r.Out) {
		t.Error(r.Out)
	}
	dump := func(url string) string {
		lines := strings.Split(clitest.Run(t, "journal", "dump", url, "--stream", "queue/full", "--bodies").Want(t, 0).Out, "\n")
		return strings.Join(lines[1:], "\n") // the first has the epoch
	}
	if a, b := dump(url), dump(there); a != b || !strings.Contains(a, `"crc"`) {
		t.Errorf("the source's dump is\n%sthe copy's\n%s", a, b)
	}
	clitest.Run(t, "journal", "copy", there, back).WantErr(t, 0, "2 streams are copied")
	peek := func(url string) string {
		return clitest.Run(t, "queue", "peek", "full", "--output", "json", "--journal", url).Want(t, 0).Out
	}
	if a, b := peek(url), peek(back); a != b || !strings.Contains(a, `"id"`) {
		t.Errorf("the source has\n%sthe copy of the copy\n%s", a, b)
	}
	wrong := strings.Replace(there, "holdfast:holdfast@", "holdfast:wrong@", 1)
	r = clitest.Run(t, "journal", "verify", wrong).WantErr(t, 1, "correct the user or the password")
	if strings.Contains(r.Err, "wrong") {
		t.Errorf("the password is in %q", r.Err)
	}
	clitest.Run(t, "journal", "verify", there+"&sync=off").WantErr(t, 1, `unknown option "sync"`)
}
