package cassandra

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// rivalEnv makes the test binary a process that takes a stream from others: its value is the URL and the prefix of the names.
const rivalEnv = "HOLDFAST_CASSANDRA_RIVAL"

// rivalTakeovers is how often each of them takes the stream.
const rivalTakeovers = 12

// rival acquires a stream and appends to it, again and again, and prints what it was told: "acked" or "fenced" and the header.
func rival() int {
	if err := runRival(os.Getenv(rivalEnv)); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	return 0
}

func runRival(env string) error {
	url, prefix, _ := strings.Cut(env, " ")
	o, err := ParseURL(url)
	if err != nil {
		return err
	}
	o.prefix, o.Logger = prefix, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	j, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	for range rivalTakeovers {
		var s journal.Stream
		for s == nil {
			if s, err = j.Acquire(ctx, "orders"); err != nil {
				if !errors.Is(err, journal.ErrUnknown) || ctx.Err() != nil {
					return err
				}
				s = nil
			}
		}
		at := s.Acquired()
		w := &writer{s: s, end: place{at.End, at.EndCRC, at.EndTime}}
		for range 1 + rand.IntN(12) {
			r := w.next(uint64(1+rand.IntN(3)), rand.IntN(300))
			// Some answers are not waited for.
			short, cancel := context.WithTimeout(ctx, time.Duration(1+rand.IntN(60))*time.Millisecond)
			if rand.IntN(10) == 0 {
				_ = s.Append(short, r.First-1, r)
			}
			cancel()
			err := w.put(ctx, r)
			switch {
			case err == nil:
				fmt.Printf("acked %x\n", journal.AppendHeader(nil, &r.Header))
			case errors.Is(err, journal.ErrFenced):
				fmt.Printf("fenced %x\n", journal.AppendHeader(nil, &r.Header))
			default:
				return err
			}
			if err != nil {
				break
			}
		}
		wait(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
	}
	return nil
}

// raceProcesses lets processes take a stream from each other, and checks what they were told against the stream. meanwhile runs beside them.
func raceProcesses(t *testing.T, url string, n int, meanwhile func()) {
	t.Helper()
	o := options(t, with(url, "holdfast", "&bucket-records=4&inline=100"))
	j := open(t, o)
	outputs := make([]bytes.Buffer, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		testserver.EndWithTest(cmd)
		cmd.Env = append(os.Environ(), rivalEnv+"="+with(url, "holdfast", "&bucket-records=4&inline=100")+" "+o.prefix)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				out := outputs[i].String()
				t.Errorf("process %d: %v\n%s", i, err, out[max(0, len(out)-500):])
			}
		})
	}
	if meanwhile != nil {
		meanwhile()
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	r, err := j.Open(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	stored := map[uint64]journal.Header{}
	for _, h := range headers(t, r, true) {
		stored[h.First] = h
	}
	acked, fenced, epochs := 0, 0, map[uint64]bool{}
	for i := range outputs {
		for lines := bufio.NewScanner(&outputs[i]); lines.Scan(); {
			var what, text string
			if _, err := fmt.Sscan(lines.Text(), &what, &text); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			h, err := journal.ParseHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case what == "acked" && stored[h.First] != h:
				t.Errorf("acknowledged to epoch %d at seq %d, and in its place is %+v", h.Epoch, h.First, stored[h.First])
			case what == "fenced" && stored[h.First] == h:
				t.Errorf("told as fenced to epoch %d, and stored at seq %d", h.Epoch, h.First)
			case what == "acked":
				acked++
				epochs[h.Epoch] = true
			default:
				fenced++
			}
		}
	}
	if acked != len(stored) {
		t.Errorf("%d records are stored, %d were acknowledged", len(stored), acked)
	}
	t.Logf("%d records acknowledged in %d epochs, %d fenced", acked, len(epochs), fenced)
}

// G5: two processes that take a stream from each other lose and interleave nothing.
func TestTwoProcesses(t *testing.T) {
	raceProcesses(t, server.URL(), 2, nil)
}
