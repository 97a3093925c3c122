package journalcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// store makes a store with two queues: one with messages left, one empty again.
func store(t *testing.T) (dir, url string) {
	t.Helper()
	dir = filepath.Join(clitest.Dir(t), "data")
	url = clitest.Journal(dir)
	clitest.Run(t, "send", "full", "alpha", "beta", "gamma", "--journal", url).Want(t, 0)
	clitest.Run(t, "receive", "full", "--count", "1", "--journal", url).WantOut(t, "alpha\n")
	clitest.Run(t, "send", "empty", "x", "--journal", url).Want(t, 0)
	clitest.Run(t, "receive", "empty", "--count", "1", "--journal", url).WantOut(t, "x\n")
	return dir, url
}

// files returns the contents of all files of a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

// Verify reads everything, says so for each stream, and changes nothing.
func TestVerifyIntact(t *testing.T) {
	dir, url := store(t)
	before := files(t, dir)
	r := clitest.Run(t, "journal", "verify", url).WantErr(t, 0, "2 streams are intact")
	want := regexp.MustCompile(`^ok\tqueue/empty\tepoch \d+, .* 0 messages, 0 bodies, .*\nok\tqueue/full\tepoch \d+, seqs \d+ to \d+, snapshot at \d+, \d+ records, \d+ events, 2 messages, 1 bodies, .*\n$`)
	if !want.MatchString(r.Out) {
		t.Error(r.Out)
	}
	for name, content := range files(t, dir) {
		if name != "LOCK" && name != "OWNER" && before[name] != content { // those tell who looks
			t.Errorf("%s was changed", name)
		}
	}
	r = clitest.Run(t, "journal", "verify", url, "--stream", "queue/full").Want(t, 0)
	if strings.Count(r.Out, "\n") != 1 {
		t.Error(r.Out)
	}
	clitest.Run(t, "journal", "verify", url, "--stream", "queue/none").WantErr(t, 1, `there is no stream "queue/none"`)
	clitest.Run(t, "journal", "verify", "nosuch:").WantErr(t, 2, "is not the URL of a journal")
	clitest.Run(t, "journal", "verify").Want(t, 2)
}

// Dump shows the records with their events, and bodies if asked.
func TestDump(t *testing.T) {
	_, url := store(t)
	r := clitest.Run(t, "journal", "dump", url, "--stream", "queue/full", "--bodies").Want(t, 0)
	kinds := map[string]int{}
	bodies := 0
	for i, l := range strings.Split(strings.TrimSpace(r.Out), "\n") {
		var o struct {
			Stream, Kind string
			Events       []struct{ Event string }
			Body         []byte `json:"body_base64"`
		}
		if err := json.Unmarshal([]byte(l), &o); err != nil || o.Stream != "queue/full" {
			t.Fatalf("%s: %v", l, err)
		}
		if i == 0 {
			continue // the stream
		}
		for _, e := range o.Events {
			kinds[e.Event]++
		}
		if strings.Contains(string(o.Body), "beta") && strings.Contains(string(o.Body), "gamma") {
			bodies++
		}
	}
	if kinds["added"]+kinds["deleted"] == 0 && kinds["leased"] == 0 {
		t.Errorf("no events in\n%s", r.Out)
	}
	if bodies > 1 {
		t.Errorf("%d records with the bodies of the messages that are left", bodies)
	}
	all := clitest.Run(t, "journal", "dump", url).Want(t, 0)
	if !strings.Contains(all.Out, `{"stream":"queue/empty","uid":`) || !strings.Contains(all.Out, `{"stream":"queue/full","uid":`) {
		t.Error(all.Out)
	}
}

// A message's body that is damaged is named, with its queue and place, and the exit code is 1.
func TestVerifyDamagedBody(t *testing.T) {
	dir, url := store(t)
	flipped := false
	for name, content := range files(t, dir) {
		if at := strings.Index(content, "gamma"); at >= 0 {
			b := []byte(content)
			b[at] ^= 1
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
			flipped = true
		}
	}
	if !flipped {
		t.Fatal("no file holds the message")
	}
	r := clitest.Run(t, "journal", "verify", url)
	if r.Code != 1 || !strings.Contains(r.Out+r.Err, "corrupt") && !strings.Contains(r.Out+r.Err, "missing") {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Out, r.Err)
	}
}

// Copy says for each stream what it has copied and up to where; the copy has the same messages under the same ids; another run
// copies nothing; and a target that was written to is refused.
func TestCopy(t *testing.T) {
	dir, url := store(t)
	dst := clitest.Journal(filepath.Join(filepath.Dir(dir), "copy"))
	clitest.Run(t, "queue", "delete", "empty", "--yes", "--journal", url).Want(t, 0)
	r := clitest.Run(t, "journal", "copy", url, dst).WantErr(t, 0, "2 streams are copied")
	want := regexp.MustCompile(`^copied\tqueue/empty\tcomplete up to seq \d+, .*, dropped\ncopied\tqueue/full\tcomplete up to seq \d+, \d+ records, 1 bodies, \d+ parts, .*, \d+ records compared\n$`)
	if !want.MatchString(r.Out) {
		t.Error(r.Out)
	}
	again := clitest.Run(t, "journal", "copy", url, dst, "--stream", "queue/full", "--no-verify").Want(t, 0)
	if !strings.Contains(again.Out, " 0 records, 0 bodies, 0 parts") {
		t.Error(again.Out)
	}
	source := clitest.Run(t, "queue", "peek", "full", "--output", "json", "--journal", url).Want(t, 0).Out
	if peeked := clitest.Run(t, "queue", "peek", "full", "--output", "json", "--journal", dst).Want(t, 0).Out; peeked != source || !strings.Contains(peeked, `"id"`) {
		t.Errorf("the source has\n%sthe copy\n%s", source, peeked)
	}
	clitest.Run(t, "journal", "verify", dst).Want(t, 0)
	clitest.Run(t, "send", "full", "delta", "--journal", dst).Want(t, 0)
	r = clitest.Run(t, "journal", "copy", url, dst).WantErr(t, 1, "1 of 2 streams were not copied")
	if !strings.Contains(r.Out, "failed\tqueue/full\t") || !strings.Contains(r.Out, "written to since it was copied") {
		t.Error(r.Out)
	}
	for _, args := range [][]string{{url}, {url, url}, {url, "nosuch:x"}, {"nosuch:x", dst}, {url, dst, "--parallel", "0"}} {
		clitest.Run(t, append([]string{"journal", "copy"}, args...)...).Want(t, 2)
	}
	clitest.Run(t, "journal", "copy", url, dst, "--stream", "queue/none").WantErr(t, 1, `there is no stream "queue/none"`)
}
