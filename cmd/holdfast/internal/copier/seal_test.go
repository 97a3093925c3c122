package copier

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// A record can be given any CRC, and is a valid one then.
func TestSealAs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		want := rng.Uint32()
		rec := &journal.Record{Header: journal.Header{
			Epoch: 1 + rng.Uint64N(100), First: 1 + rng.Uint64N(1<<40), Count: 1 + rng.Uint64N(1<<30), Kind: journal.KindSkip, Time: rng.Int64(),
		}}
		if rng.IntN(2) == 0 {
			rec.Body = [][]byte{make([]byte, rng.IntN(100)), {1, 2, 3}}
		}
		if err := sealAs(rec, rng.Uint32(), want); err != nil {
			t.Fatal(err)
		}
		h, err := journal.ParseHeader(journal.AppendHeader(nil, &rec.Header))
		if err != nil || h.CRC != want || h.VerifyMeta(rec.Meta) != nil || h.VerifyBody(rec.Body...) != nil {
			t.Fatalf("%+v, want CRC %08x: %v", h, want, err)
		}
	}
}
