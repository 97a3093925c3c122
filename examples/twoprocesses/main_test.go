package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "twoprocesses")
	if err == nil {
		binary = filepath.Join(dir, "twoprocesses")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// orders is how many a run has; window is how many are unconfirmed at most.
const (
	orders = 400
	window = 64
)

func rounds() int {
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		return 50
	}
	return 3
}

// process is a running program, and what it has said.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	read chan struct{} // closed when it has said its last

	mu        sync.Mutex
	changed   chan struct{} // closed with each line
	address   string
	confirmed map[uint64]bool
	all       bool
}

func begin(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), read: make(chan struct{}), changed: make(chan struct{}), confirmed: make(map[uint64]bool)}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.cmd.Stderr = io.Discard
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.listen(out)
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.read; _ = p.cmd.Wait() })
	return p
}

func (p *process) listen(out io.Reader) {
	defer close(p.read)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		var n uint64
		switch line := lines.Text(); {
		case line == "all confirmed":
			p.all = true
		case strings.HasPrefix(line, "listening on "):
			p.address = strings.TrimPrefix(line, "listening on ")
		default:
			if _, err := fmt.Sscanf(line, "confirmed %d", &n); err == nil {
				p.confirmed[n] = true
			}
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

// await waits until what the process has said meets a condition, or until it has ended. It reports which.
func (p *process) await(cond func() bool) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-p.read:
			p.mu.Lock()
			defer p.mu.Unlock()
			return cond()
		case <-ctx.Done():
			p.t.Fatalf("the process says nothing more; %d confirmed", len(p.confirmed))
		}
	}
}

// known returns the orders that the shop says are confirmed.
func (p *process) known() map[uint64]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[uint64]bool, len(p.confirmed))
	for n := range p.confirmed {
		known[n] = true
	}
	return known
}

// kill ends the process at once; what it said before has then been read.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	<-p.read
	_ = p.cmd.Wait()
}

// warehouse starts one that listens, on a free port if address is empty.
func warehouse(t *testing.T, address, ledger string) *process {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	p := begin(t, "receive", address, ledger)
	if !p.await(func() bool { return p.address != "" }) {
		t.Fatal("the warehouse did not begin")
	}
	return p
}

// finish waits until everything is confirmed.
func finish(t *testing.T, shop *process) {
	t.Helper()
	if !shop.await(func() bool { return shop.all }) {
		t.Fatal("the shop ended before everything was confirmed")
	}
}

// entry is a line of the ledger.
type entry struct {
	order       uint64
	incarnation string
	seq         uint64
}

func read(t *testing.T, ledger string) (all []entry) {
	t.Helper()
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e entry
		var item, producer string
		if _, err := fmt.Sscan(line, &e.order, &item, &producer, &e.incarnation, &e.seq); err != nil || producer != "shop" {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// times counts how often each order was handled, and fails if one never was.
func times(t *testing.T, all []entry) map[uint64]int {
	t.Helper()
	n := make(map[uint64]int)
	for _, e := range all {
		n[e.order]++
	}
	for i := range uint64(orders) {
		if n[i+1] == 0 {
			t.Errorf("order %d was lost", i+1)
		}
	}
	if len(n) != orders {
		t.Errorf("%d different orders in the ledger, want %d", len(n), orders)
	}
	return n
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A durable producer that is killed and started again, time after time, loses nothing, and nothing is handled twice (§6, durable
// producer): each order is in the ledger once, under one incarnation, in order.
func TestDurableProducerKilled(t *testing.T) {
	rng := seeded(t)
	dir := t.TempDir()
	ledger, store := filepath.Join(dir, "ledger"), filepath.Join(dir, "store")
	w := warehouse(t, "", ledger)
	for range rounds() {
		shop := begin(t, "send", "-store", store, w.address, fmt.Sprint(orders))
		some := 1 + rng.IntN(orders/4)
		shop.await(func() bool { return len(shop.confirmed) >= some })
		shop.kill()
	}
	finish(t, begin(t, "send", "-store", store, w.address, fmt.Sprint(orders)))
	all := read(t, ledger)
	times(t, all)
	for i, e := range all {
		if e.order != uint64(i)+1 || e.seq != e.order || e.incarnation != all[0].incarnation {
			t.Fatalf("line %d of the ledger is %+v", i+1, e)
		}
	}
}

// A plain producer that is killed knows of what was confirmed, and of no more. Started again behind that, it loses nothing; what was
// handled without its knowing is handled again, at most a window each time, under the new incarnation (documented in docs/delivery.md).
func TestPlainProducerKilled(t *testing.T) {
	rng := seeded(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	w := warehouse(t, "", ledger)
	from := uint64(1)
	confirmed := make(map[uint64]bool)
	for range rounds() {
		shop := begin(t, "send", "-from", fmt.Sprint(from), w.address, fmt.Sprint(orders))
		some := 1 + rng.IntN(orders/4)
		shop.await(func() bool { return len(shop.confirmed) >= some })
		shop.kill()
		for n := range shop.known() {
			confirmed[n] = true
		}
		for confirmed[from] {
			from++
		}
	}
	finish(t, begin(t, "send", "-from", fmt.Sprint(from), w.address, fmt.Sprint(orders)))
	all := read(t, ledger)
	again := 0
	for n, count := range times(t, all) {
		if count > 1 {
			again++
			if count > rounds()+1 {
				t.Errorf("order %d was handled %d times", n, count)
			}
		}
	}
	if again > rounds()*window {
		t.Errorf("%d orders were handled again, more than %d windows", again, rounds())
	}
	seen := make(map[entry]bool)
	for _, e := range all {
		if seen[e] {
			t.Errorf("%+v was handled twice within one incarnation", e)
		}
		seen[e] = true
	}
}

// A consumer that is killed and started again costs no message, and only what was unacknowledged at that moment is handled again;
// the producer, which lives on, never notices more than a pause.
func TestConsumerKilled(t *testing.T) {
	rng := seeded(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	w := warehouse(t, "", ledger)
	shop := begin(t, "send", w.address, fmt.Sprint(orders))
	type kill struct {
		known map[uint64]bool // confirmed before it
		lines int             // in the ledger after it
	}
	var kills []kill
	for range rounds() {
		before := len(shop.known())
		some := min(before+1+rng.IntN(orders/4), orders)
		shop.await(func() bool { return len(shop.confirmed) >= some })
		k := kill{known: shop.known()}
		w.kill()
		k.lines = len(read(t, ledger))
		kills = append(kills, k)
		w = warehouse(t, w.address, ledger)
	}
	finish(t, shop)
	all := read(t, ledger)
	for _, k := range kills {
		handled := make(map[uint64]bool)
		for _, e := range all[:k.lines] {
			handled[e.order] = true
		}
		again := 0
		for _, e := range all[k.lines:] {
			if k.known[e.order] {
				t.Errorf("order %d was acknowledged before the kill, and handled again", e.order)
			}
			if handled[e.order] {
				again++
			}
		}
		if again > window*len(kills) {
			t.Errorf("%d orders were handled again", again)
		}
	}
	times(t, all)
}

// A warehouse that is asked to stop acknowledges all that it has handled, so that its successor handles nothing again.
func TestConsumerStopped(t *testing.T) {
	ledger := filepath.Join(t.TempDir(), "ledger")
	w := warehouse(t, "", ledger)
	shop := begin(t, "send", w.address, fmt.Sprint(orders))
	shop.await(func() bool { return len(shop.confirmed) >= orders/4 })
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-w.read
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the warehouse ended with %v", err)
	}
	warehouse(t, w.address, ledger)
	finish(t, shop)
	for n, count := range times(t, read(t, ledger)) {
		if count != 1 {
			t.Errorf("order %d was handled %d times", n, count)
		}
	}
}
