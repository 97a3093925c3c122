package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// A sender whose broker is gone says so within two seconds, although it tries again and again meanwhile (G4).
func TestWaitsForTheBrokerAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		told := make(chan bool, 10)
		s := newSender(t, n, holdfast.SenderOptions{OnWait: func(waits bool, _ string) { told <- waits }})
		if _, err := s.Send(t.Context(), msg("a")); err != nil {
			t.Fatal(err)
		}
		n.refuse(errors.New("connection refused"))
		n.breakAll(errCable)
		began := time.Now()
		done := make(chan error, 1)
		if err := s.SendAsync(t.Context(), msg("b"), func(_ holdfast.ID, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if waits := <-told; !waits || time.Since(began) > 2*time.Second {
			t.Errorf("told %v after %v", waits, time.Since(began))
		}
		n.refuse(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if waits := <-told; waits {
			t.Error("not told that it goes on")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
