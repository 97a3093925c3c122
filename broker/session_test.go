package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// §7 Leases, Disconnect: what was leased to a receiver and not handed over any more when its broker died is given to others as soon as the
// receiver is back and does not name it, without waiting for the lease to end; what it names stays its own.
func TestLeasesThatNobodyGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, err := memory.Open(t.Context(), "memory:")
		if err != nil {
			t.Fatal(err)
		}
		b := open(t, j, Options{})
		const q = "work"
		for i := range 3 {
			if _, err := b.Queue(q).Send(t.Context(), holdfast.Message{Body: fmt.Append(nil, i), Key: fmt.Sprint("key", i%2)}); err != nil {
				t.Fatal(err)
			}
		}
		cfg := holdfast.ReceiverConfig{Session: [16]byte{1, 2, 3}, Announces: true}
		dies, _, _ := receive(t, b, q, cfg, 10)
		dies.until(t, "the first of each key", func() bool { return dies.count() == 2 })
		held := dies.spans()[:1]
		held[0].Count = 1 // the one that it got
		b.crash()

		b = open(t, j, Options{})
		other, _, _ := receive(t, b, q, holdfast.ReceiverConfig{Session: [16]byte{4}, Announces: true}, 10)
		pass(time.Second)
		if n := other.count(); n != 0 {
			t.Fatalf("%d messages were handed over before their receiver could come back", n)
		}
		cfg.Held = held
		_, _, opened := receive(t, b, q, cfg, 0)
		if len(opened.Kept) != 1 || opened.Kept[0] != held[0] {
			t.Errorf("kept %v of %v", opened.Kept, held)
		}
		began := time.Now()
		other.until(t, "what the first one did not get", func() bool { return other.count() == 1 })
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		if got := other.bodies(t); got[0] != "1" {
			t.Errorf("handed over %q", got)
		}
		shut(t, b)
	})
}
