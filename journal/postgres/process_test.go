package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// childEnv makes the test binary another process that appends to a stream of this URL until it is fenced.
const childEnv = "HOLDFAST_POSTGRES_CHILD"

// appendUntilFenced prints "acked SEQ CRC" for each record, and at last how it ended.
func appendUntilFenced(url string, out io.Writer) error {
	ctx := context.Background()
	j, err := Open(ctx, url, quiet(Options{}))
	if err != nil {
		return err
	}
	defer j.Close() //nolint:errcheck // the process ends
	s, err := j.Acquire(ctx, "orders")
	if err != nil {
		return err
	}
	at := s.Acquired()
	for {
		r := &journal.Record{
			Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: at.End + 1, Count: 1, Kind: journal.KindEvents, Time: at.EndTime + 1},
			Meta:   []byte("meta"), Body: [][]byte{make([]byte, 20_000)},
		}
		if err := r.Seal(at.EndCRC); err != nil {
			return err
		}
		for err = journal.ErrUnknown; errors.Is(err, journal.ErrUnknown); {
			err = s.Append(ctx, at.End, r)
		}
		if errors.Is(err, journal.ErrFenced) {
			_, err := fmt.Fprintln(out, "fenced")
			return err
		}
		if err != nil {
			return err
		}
		at.End, at.EndCRC, at.EndTime = r.First, r.CRC, r.Time
		if _, err := fmt.Fprintf(out, "acked %d %08x\n", r.First, r.CRC); err != nil {
			return err
		}
	}
}

// G5: a process that stands still in the middle of its appends does not hold up its successor, and gets nothing more in when it
// goes on: what it was acknowledged is there, and it hears that it was fenced.
func TestStoppedProcessIsFenced(t *testing.T) {
	url := newSchema(t, server)
	j := openTest(t, url, Options{})
	for round := range 5 * soak {
		child := exec.Command(os.Args[0])
		testserver.EndWithTest(child)
		child.Env = append(os.Environ(), childEnv+"="+url)
		child.Stderr = os.Stderr
		pipe, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acked := map[uint64]string{}
		lines := bufio.NewScanner(pipe)
		for n := 0; n < 20+round && lines.Scan(); n++ {
			note(t, acked, lines.Text())
		}
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w := newWriter(t, j, "orders")
		w.put(10, 10)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("taking over from a process that stands still took %v", took)
		}
		first := w.last
		if err := child.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		last := ""
		for lines.Scan() {
			if last = lines.Text(); last != "fenced" {
				note(t, acked, last)
			}
		}
		if err := child.Wait(); err != nil || last != "fenced" {
			t.Fatalf("the child ended with %q, %v", last, err)
		}
		w.put(10, 10)
		for rec, err := range w.s.ReadMeta(t.Context(), 1, 1<<60) {
			if err != nil {
				t.Fatal(err)
			}
			if crc, ok := acked[rec.First]; ok && crc != fmt.Sprintf("%08x", rec.CRC) {
				t.Fatalf("seq %d was acknowledged with CRC %s, there is %08x", rec.First, crc, rec.CRC)
			}
			delete(acked, rec.First)
		}
		if len(acked) > 0 {
			t.Fatalf("acknowledged and not there: %v", acked)
		}
		if w.last.First != first.First+1 {
			t.Fatalf("the successor's records are at %d and %d", first.First, w.last.First)
		}
	}
}

func note(t *testing.T, acked map[uint64]string, line string) {
	t.Helper()
	var seq uint64
	var crc string
	if _, err := fmt.Sscanf(strings.TrimSpace(line), "acked %d %s", &seq, &crc); err != nil {
		t.Fatalf("the child says %q", line)
	}
	acked[seq] = crc
}
