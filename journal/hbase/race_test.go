package hbase

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// racerEnv makes the test binary a process that fights for a stream: URL, table, prefix and seed.
const racerEnv = "HOLDFAST_HBASE_RACER"

// racer takes the stream from others, and writes what it was told to standard output until its input ends.
func racer() int {
	args := strings.Fields(os.Getenv(racerEnv))
	o, err := ParseURL(args[0])
	if err != nil {
		return fail(err)
	}
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return fail(err)
	}
	o.Table, o.prefix, o.BucketRecords = args[1], args[2], 3
	o.Logger = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	j, err := Open(ctx, o)
	if err != nil {
		return fail(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	out := json.NewEncoder(os.Stdout)
	for ctx.Err() == nil {
		if err := raceOnce(ctx, j, rng, out); err != nil && ctx.Err() == nil {
			return fail(err)
		}
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// told is a record and what its owner was told of it.
type told struct {
	Header journal.Header
	Fenced bool
}

// raceOnce acquires the stream and appends until it is fenced or has had enough. Sometimes it discards.
func raceOnce(ctx context.Context, j *Journal, rng *rand.Rand, out *json.Encoder) error {
	s, err := j.Acquire(ctx, "orders")
	if errors.Is(err, journal.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	at := s.Acquired()
	for range rng.IntN(12) {
		r := nextRecord(at, at.Epoch, []byte("meta"), fmt.Appendf(nil, "body of epoch %d", at.Epoch))
		err := settle(ctx, func() error { return s.Append(ctx, at.End, r) })
		fenced := errors.Is(err, journal.ErrFenced)
		if err != nil && !fenced {
			return err
		}
		if err := out.Encode(told{r.Header, fenced}); err != nil || fenced {
			return err
		}
		at.End, at.EndCRC, at.EndTime = r.Last(), r.CRC, r.Time
	}
	if rng.IntN(3) == 0 {
		err := s.DiscardBodies(ctx, []journal.Range{{From: 1, To: at.End - at.End%5}})
		if err != nil && !errors.Is(err, journal.ErrFenced) && !errors.Is(err, journal.ErrUnknown) {
			return err
		}
	}
	return nil
}

// G5, §4: two processes that take a stream from each other, each of them stopped now and then (SIGSTOP) and going on as if nothing had
// happened, never interleave: what was acknowledged is in its place, what was told as fenced is not there.
func TestTwoProcesses(t *testing.T) {
	o := testOptions(t, server)
	j := mustOpen(t, o)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	var all []told
	enough := make(chan struct{})
	want := 200 * soak
	var racers []*exec.Cmd
	var wg sync.WaitGroup
	for i := range 2 {
		cmd := exec.Command(os.Args[0])
		testserver.EndWithTest(cmd)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d", racerEnv, server.URL(), o.Table, o.prefix, seed+uint64(i)))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		racers = append(racers, cmd)
		wg.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				var line told
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
					t.Errorf("racer %d says %q: %v", i, lines.Text(), err)
					return
				}
				mu.Lock()
				if all = append(all, line); len(all) == want {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	stopAndGo(t, racers, enough, rand.New(rand.NewPCG(seed, 3)))
	for _, cmd := range racers {
		if err := cmd.Process.Kill(); err != nil { // with calls under way
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
	wg.Wait()
	checkTold(t, j, all)
}

// stopAndGo stops racers in turn for a moment, until enough is closed.
func stopAndGo(t *testing.T, racers []*exec.Cmd, enough chan struct{}, rng *rand.Rand) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	patience := 2 * time.Minute
	if soak > 1 {
		patience = 10 * time.Minute
	}
	end := time.NewTimer(patience)
	defer end.Stop()
	for n := 0; ; n++ {
		p := racers[n%len(racers)].Process
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := p.Signal(sig); err != nil {
				t.Fatalf("a racer has ended: %v", err)
			}
			tick.Reset(time.Duration(20+rng.IntN(200)) * time.Millisecond)
			select {
			case <-tick.C:
			case <-enough:
				_ = p.Signal(syscall.SIGCONT) // it may be stopped
				return
			case <-end.C:
				t.Fatalf("the racers have not done enough within %v", patience)
			}
		}
	}
}

func checkTold(t *testing.T, j *Journal, all []told) {
	t.Helper()
	r, err := j.Open(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var acked, refused []journal.Header
	epochs := map[uint64]bool{}
	for _, line := range all {
		epochs[line.Header.Epoch] = true
		if line.Fenced {
			refused = append(refused, line.Header)
		} else {
			acked = append(acked, line.Header)
		}
	}
	wantHistory(t, r, acked)
	hs, err := metas(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range refused {
		for _, h := range hs {
			if h == no {
				t.Errorf("the record at seq %d of epoch %d is stored, but was told as fenced", h.First, h.Epoch)
			}
		}
	}
	t.Logf("%d acknowledged, %d fenced, %d stored, of %d epochs", len(acked), len(refused), len(hs), len(epochs))
	if len(epochs) < 10 || len(refused) == 0 {
		t.Errorf("only %d epochs and %d records fenced: they did not race", len(epochs), len(refused))
	}
}
