package journalcmd

import (
	"bytes"
	"context"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/journal"
)

// damagedReader is a stream of records of 10 seqs, some of which cannot be read.
type damagedReader struct {
	journal.Reader
	bad map[uint64]bool // by first seq
}

func (r damagedReader) ReadMeta(_ context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for first := (from-1)/10*10 + 1; first <= min(to, 60); first += 10 {
			if r.bad[first] {
				yield(nil, &journal.CorruptError{Stream: "s", Seq: max(from, first), What: "record does not verify"})
				return
			}
			if !yield(&journal.Record{Header: journal.Header{First: first, Count: 10}}, nil) {
				return
			}
		}
	}
}

// Dump shows every record that can be read, and tells of damage once for each place, however many messages the record has.
func TestDumpBehindDamage(t *testing.T) {
	var out bytes.Buffer
	d := &dumper{a: cli.New(strings.NewReader(""), &out, io.Discard), to: 1000}
	r := damagedReader{bad: map[uint64]bool{11: true, 41: true, 51: true}}
	if err := d.stream(t.Context(), r, journal.Info{Name: "s", Low: 1, End: 60}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{`"seq":1,`, `"seq":11,"error":`, `"seq":21,`, `"seq":31,`, `"seq":41,"error":`}
	if len(lines) != len(want) || d.faults != 2 {
		t.Fatalf("%d faults, want 2; want %d lines, got\n%s", d.faults, len(want), out.String())
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) {
			t.Errorf("line %d is %s, want %s", i, lines[i], w)
		}
	}
}
