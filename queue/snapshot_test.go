package queue

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

func chunksOf(c *Core) [][]byte {
	var out [][]byte
	for b := range c.Capture().Chunks() {
		out = append(out, b)
	}
	return out
}

// storedCore is busyCore with everything that a snapshot holds.
func storedCore(t testing.TB) *Core {
	t.Helper()
	c := busyCore(t)
	first := c.NextSeq()
	for _, e := range []Event{
		{Kind: KindConfigured, At: 2000, Config: &Config{MaxDeliveries: 4}},
		{Kind: KindAdded, At: 2000, Added: &Added{Count: 2, Sizes: []uint32{5, 6}}},
		{Kind: KindRelocated, At: 2000, Spans: []Span{{20, 3}}},
	} {
		if err := c.Apply(c.NextSeq(), &e); err != nil {
			t.Fatal(err)
		}
	}
	c.Stored(first, c.NextSeq()-1, 90)
	if bad := invariants(c); bad != "" {
		t.Fatal(bad)
	}
	return c
}

// A snapshot gives the same state again, also as the first version of the format wrote it: testdata/snapshot.hex and snapshot-sessions.hex,
// whose leases have sessions, never change (design §3, Formats).
func TestSnapshotFormat(t *testing.T) {
	testSnapshotFormat(t, storedCore(t), "snapshot.hex")
	c := storedCore(t)
	x, _, ok := c.ready[0].NextRun(0, maxSeq)
	if !ok {
		t.Fatal("nothing is ready")
	}
	for i, e := range []Event{
		{Kind: KindLeased, At: 2000, Lease: c.nextLease, Spans: []Span{{x, 1}}, Announces: true, Session: 0x1122334455667788},
		{Kind: KindAdded, At: 2000, Added: &Added{Count: blockSize, Uniform: 1}}, // the last ones are in a block without leases
	} {
		if err := c.Apply(c.NextSeq(), &e); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	c.Stored(c.NextSeq()-1, c.NextSeq()-1, 10)
	versions := map[byte]int{}
	for _, b := range chunksOf(c) {
		if b[0] == chunkMessages {
			versions[b[1]]++
		}
	}
	if versions[snapshotVersion] == 0 || versions[sessionsVersion] == 0 {
		t.Errorf("versions of the chunks with messages: %v", versions)
	}
	testSnapshotFormat(t, c, "snapshot-sessions.hex")
}

func testSnapshotFormat(t *testing.T, c *Core, file string) {
	t.Helper()
	chunks := chunksOf(c)
	path := filepath.Join("testdata", file)
	var lines []string
	for _, b := range chunks {
		lines = append(lines, hex.EncodeToString(b))
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines, "\n"); got != strings.TrimSpace(string(golden)) {
		t.Errorf("the snapshot is written as\n%s", got)
	}
	var old [][]byte
	for _, l := range strings.Fields(string(golden)) {
		b, err := hex.DecodeString(l)
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, b)
	}
	r, err := Restore(Options{}, sequence(old))
	if err != nil {
		t.Fatal(err)
	}
	if want, got := dump(c, 2000), dump(r, 2000); want != got {
		t.Errorf("restored: %s", diff(want, got))
	}
	if bad := invariants(r); bad != "" {
		t.Error(bad)
	}
	// What is restored is written as it was.
	for i, b := range chunksOf(r) {
		if i >= len(chunks) || !bytes.Equal(b, chunks[i]) {
			t.Errorf("chunk %d changes by restoring", i)
		}
	}
}

// A damaged snapshot is refused, a newer one too, and an error on the way is passed on.
func TestRestoreRefuses(t *testing.T) {
	chunks := chunksOf(storedCore(t))
	for i := range chunks {
		cut := append([][]byte{}, chunks...)
		cut[i] = chunks[i][:len(chunks[i])-1]
		if _, err := Restore(Options{}, sequence(cut)); !errors.Is(err, ErrMalformed) {
			t.Errorf("chunk %d cut: %v", i, err)
		}
		missing := append(append([][]byte{}, chunks[:i]...), chunks[i+1:]...)
		_, err := Restore(Options{}, sequence(missing))
		if kind := chunks[i][0]; (kind == chunkHead || kind == chunkMessages) && !errors.Is(err, ErrMalformed) {
			t.Errorf("chunk %d missing: %v", i, err)
		}
		newer := append([][]byte{}, chunks...)
		newer[i] = bytes.Clone(chunks[i])
		newer[i][1] = sessionsVersion + 1
		if _, err := Restore(Options{}, sequence(newer)); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("chunk %d newer: %v", i, err)
		}
	}
	broken := errors.New("disk")
	_, err := Restore(Options{}, func(yield func([]byte, error) bool) { _ = yield(chunks[0], nil) && yield(nil, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("an error of the chunks: %v", err)
	}
	if _, err := Restore(Options{}, sequence(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("no chunks: %v", err)
	}
	if _, err := Restore(Options{Moves: -1}, sequence(chunks)); err == nil {
		t.Error("wrong options are accepted")
	}
}

// FuzzRestore restores a snapshot of which one chunk is anything.
func FuzzRestore(f *testing.F) {
	good := chunksOf(storedCore(f))
	for i, b := range good {
		f.Add(i, b)
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		chunks := append([][]byte{}, good...)
		chunks[min(max(i, 0), len(chunks)-1)] = b
		c, err := Restore(Options{}, sequence(chunks))
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewerFormat) {
				t.Fatal(err)
			}
			return
		}
		c.counts.sent = c.live.Len() // the counts are taken as they are
		n := c.counts
		c.counts = counts{sent: n.sent}
		c.Recovered(5000)
		c.Tick(40_000)
		if bad := invariants(c); bad != "" {
			t.Fatal(bad)
		}
		for range c.Capture().Chunks() {
		}
	})
}

// Chunks that have not changed are the same in the next snapshot, so that they need not be written again (design §4, Snapshots).
func TestSnapshotChunksAreStable(t *testing.T) {
	frame, info := frameOf(manyMessages(500)...)
	p := newBench(t, 0)
	for range 400 { // 200,000 messages, with a key and a time on each fourth
		p.now += 10
		p.send(t, frame, info)
		p.take(len(frame))
	}
	before := chunksOf(p.c)
	known := map[string]bool{}
	size := 0
	for _, b := range before {
		known[string(b)] = true
		size += len(b)
	}
	if err := p.c.OpenReceiver(p.now, 2, ReceiverOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Credit(p.now, 2, 100, 1<<40); err != nil {
		t.Fatal(err)
	}
	p.take(0)
	for _, r := range p.runs {
		p.c.Ack(p.now, 0, []LeaseSpan{r.LeaseSpan})
	}
	p.send(t, frame, info)
	p.take(len(frame))
	after := chunksOf(p.c)
	changed := 0
	for _, b := range after {
		if !known[string(b)] {
			changed += len(b)
		}
		if len(b) > 1<<20 {
			t.Errorf("a chunk has %d bytes", len(b))
		}
	}
	if changed > size/4 {
		t.Errorf("%d bytes of %d change with 100 acks and 500 sends at the ends", changed, size)
	}
	if len(after) > 60 {
		t.Errorf("%d chunks", len(after))
	}
}

func manyMessages(n int) []message.Message {
	ms := make([]message.Message, n)
	for i := range ms {
		ms[i].Body = make([]byte, i%7)
		if i%4 == 0 {
			ms[i].Key, ms[i].TTL = string(rune('a'+i%26)), time.Duration(1+i%30)*time.Minute
		}
	}
	return ms
}

// A snapshot is encoded beside commands: it shares memory with the core, and neither sees the other's changes. Run with -race.
func TestSnapshotBesideCommands(t *testing.T) {
	frame, info := frameOf(manyMessages(500)...)
	p := newBench(t, 100)
	for range 40 {
		p.now += 10
		p.send(t, frame, info)
		p.take(len(frame))
	}
	want := dump(p.c, p.now)
	snap, now := p.c.Capture(), p.now
	done := make(chan [][]byte)
	go func() {
		var out [][]byte
		for b := range snap.Chunks() {
			out = append(out, b)
		}
		done <- out
	}()
	for range 40 {
		p.now += 1000
		p.send(t, frame, info)
		p.take(len(frame))
		for _, r := range p.runs {
			p.c.Nack(p.now, 0, []LeaseSpan{{r.Lease, r.Seq, r.Count / 2}, {r.Lease + r.Count/2, r.Seq + r.Count/2, r.Count - r.Count/2}}[r.Count%2:], -1)
			p.credit += r.Count
		}
		p.runs = p.runs[:0]
		if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Restore(Options{}, sequence(<-done))
	if err != nil {
		t.Fatal(err)
	}
	if got := dump(r, now); got != want {
		t.Fatal(diff(want, got))
	}
}
