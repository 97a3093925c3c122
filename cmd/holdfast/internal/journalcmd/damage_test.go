package journalcmd_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random choices; 0 draws one")

// A byte that is flipped, or missing, anywhere in a store of two queues: verify names what it hits, a queue or a file, and it hits at most one of the
// queues; or it has nothing to find, and then all messages are as they were.
func TestDamageIsNamed(t *testing.T) {
	places := 25
	if clitest.Soak() {
		places = 1000
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed %d)", seed, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, scheme := range []string{"segment", "pebble"} {
		dir := filepath.Join(clitest.Dir(t), "data")
		url := scheme + ":" + dir
		for round := range 3 {
			for _, q := range []string{"a", "b"} {
				clitest.Run(t, "send", q, fmt.Sprint(q, " one ", round), fmt.Sprint(q, " two ", round), "--journal", url).Want(t, 0)
				clitest.Run(t, "receive", q, "--count", "1", "--journal", url).Want(t, 0)
			}
		}
		whole := files(t, dir)
		want := peeked(t, url)
		var names []string
		for name, content := range whole {
			if name != "LOCK" && name != "OWNER" && name != "BALLAST" && content != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		found := 0
		for range places {
			name := names[r.IntN(len(names))]
			if large := slices.MaxFunc(names, func(a, b string) int { return used(whole[a]) - used(whole[b]) }); r.IntN(2) == 0 {
				name = large // most of it is messages, or says where they are
			}
			content := whole[name]
			at := r.IntN(max(used(content), 1))
			how := "flipped"
			changed := content[:at] + string(content[at]^1<<r.IntN(8)) + content[at+1:]
			if r.IntN(3) == 0 {
				how, changed = "missing", content[:at]+content[at+1:]
			}
			what := fmt.Sprintf("%s: %s, byte %d of %d %s", scheme, name, at, used(content), how)
			put(t, dir, whole, name, changed)
			v := clitest.Run(t, "journal", "verify", url)
			if v.Code == 0 {
				if got := peeked(t, url); got != want {
					t.Errorf("%s: verify has nothing to say, and the messages are\n%swere\n%s", what, got, want)
				}
				continue
			}
			found++
			text := v.Out + v.Err
			hit := 0
			for _, q := range []string{"queue/a", "queue/b"} {
				if strings.Contains(v.Out, "damaged\t"+q+"\t") || strings.Contains(text, fmt.Sprintf("stream %q", q)) {
					hit++
				}
			}
			named := strings.Contains(text, "is of format ") || slices.ContainsFunc(names, func(n string) bool {
				return strings.Contains(text, strings.TrimSuffix(n, filepath.Ext(n)))
			})
			if hit == 2 && !named || hit == 0 && !named {
				t.Errorf("%s: %d queues are hit, and no file is named\n%s", what, hit, text)
			}
		}
		if found == 0 {
			t.Errorf("%s: of %d damaged places none was found", scheme, places)
		}
		t.Logf("%s: %d of %d places named", scheme, found, places)
	}
}

// used is how long a file is without the blocks at its end that nothing was written to.
func used(content string) int { return len(strings.TrimRight(content, "\x00")) }

// put makes a directory have the files of a store, one of them with other content.
func put(t *testing.T, dir string, whole map[string]string, name, content string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n, c := range whole {
		if n == name {
			c = content
		}
		if n == "BALLAST" {
			continue // it holds nothing
		}
		if err := os.WriteFile(filepath.Join(dir, n), []byte(c), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// peeked is what the commands say of the messages of both queues.
func peeked(t *testing.T, url string) string {
	t.Helper()
	return clitest.Run(t, "queue", "peek", "a", "--output", "json", "--journal", url).Want(t, 0).Out +
		clitest.Run(t, "queue", "peek", "b", "--output", "json", "--journal", url).Want(t, 0).Out
}
