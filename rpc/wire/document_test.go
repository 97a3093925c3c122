package wire

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const protocolDoc = "../../docs/protocol.md"

// The bytes that docs/protocol.md shows are the vectors, and it names every type of frame with its number.
func TestDocumentShowsVectors(t *testing.T) {
	doc, err := os.ReadFile(protocolDoc)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(file, &vectors); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, v := range vectors {
		known[v.Frame] = true
	}
	shown := 0
	for _, m := range regexp.MustCompile("(?s)```hex\n(.*?)```").FindAllSubmatch(doc, -1) {
		var frame strings.Builder
		for line := range strings.Lines(string(m[1])) {
			b, _, _ := strings.Cut(line, ";")
			frame.WriteString(strings.Join(strings.Fields(b), ""))
		}
		if shown++; !known[frame.String()] {
			t.Errorf("the document shows a frame that is no vector: %s", frame.String())
		}
	}
	if shown == 0 {
		t.Error("the document shows no frame")
	}
	for i, name := range typeNames {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(strconv.Itoa(i)) + ` \| ` + regexp.QuoteMeta(name) + ` \|`)
		if name != "" && !row.Match(doc) {
			t.Errorf("the document does not list type %d, %s", i, name)
		}
	}
	for i, name := range codeNames {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(strconv.Itoa(i)) + ` \| ` + regexp.QuoteMeta(name) + ` \|`)
		if name != "" && !row.Match(doc) {
			t.Errorf("the document does not list code %d, %s", i, name)
		}
	}
}
