package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Who asks whether a journal is served is told of brokers that live, and not of entries that dead ones left.
func TestServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t)
		j := s.store.Open()
		began := time.Now()
		if got, err := Serving(t.Context(), j, 0); err != nil || got != nil || time.Since(began) > 0 {
			t.Errorf("an unused journal: %v, %v after %v", got, err, time.Since(began))
		}
		s.join("a")
		s.join("b")
		time.Sleep(time.Second)
		if got, err := Serving(t.Context(), j, 0); err != nil || !slices.Equal(got, []string{"a"}) && !slices.Equal(got, []string{"b"}) && !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("two brokers: %v, %v", got, err)
		}
		s.nodes["a"].kill()
		s.nodes["b"].kill()
		began = time.Now()
		if got, err := Serving(t.Context(), j, 0); err != nil || got != nil || time.Since(began) > 2*DefaultExpiry {
			t.Errorf("two dead brokers: %v, %v after %v", got, err, time.Since(began))
		}
	})
}
