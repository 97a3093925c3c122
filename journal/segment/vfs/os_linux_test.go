package vfs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// A long write, which goes to the file in parts, is the same as one of its bytes in a row, wherever it begins and however it is cut into buffers.
func TestLongWrite(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	path := filepath.Join(t.TempDir(), "f")
	for range 60 {
		off := rng.Int64N(3 * flushBytes)
		var bufs [][]byte
		var want []byte
		for total := rng.IntN(6 * flushBytes); len(want) < total; {
			b := make([]byte, rng.IntN([]int{1, 300, 5000, flushBytes, 3 * flushBytes}[rng.IntN(5)]+1))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			bufs, want = append(bufs, b), append(want, b...)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := pwritev(f, bufs, off); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 && len(got) == 0 {
			continue
		}
		if int64(len(got)) != off+int64(len(want)) || !bytes.Equal(got[off:], want) {
			t.Fatalf("%d bytes in %d buffers at %d: the file has %d bytes, or others", len(want), len(bufs), off, len(got))
		}
	}
}
