package persistent_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// §5, G3: the example's account counts each message once, wherever the power is cut, when every message is sent
// again until it is acknowledged, and some even after that.
func TestEffectivelyOnce(t *testing.T) {
	const messages = 12
	for step := 1; ; step++ {
		crashes := 0
		for _, cut := range []fault.Action{fault.CrashBefore(), fault.CrashAfter(), fault.LoseAnswer()} {
			synctest.Test(t, func(t *testing.T) {
				store, err := memory.NewStore(memory.Options{})
				if err != nil {
					t.Fatal(err)
				}
				open := func(plan fault.Plan) *persistent.Actor[deposit, Deposit] {
					j := fault.New(store.Open(), fault.Options{Crash: store.Crash})
					j.SetPlan(plan)
					a, err := openAccount(t.Context(), j)
					if err != nil {
						t.Fatal(err)
					}
					return a
				}
				n := 0
				a := open(func(c fault.Call) fault.Action {
					if c.Op != fault.Append {
						return fault.Action{}
					}
					if n++; n != step {
						return fault.Action{}
					}
					crashes++
					return cut
				})
				var balance, sum int
				for seq := uint64(1); seq <= messages; seq++ {
					m := Deposit{"till", seq, int(seq)}
					sum += m.Amount
					for repeat := 2; repeat > 0; {
						balance, err = process(t.Context(), a, m)
						switch {
						case err == nil:
							repeat--
						case errors.Is(err, persistent.ErrStopped):
							<-a.Done()
							a = open(nil)
						default:
							t.Fatal(err)
						}
					}
				}
				if balance != sum {
					t.Errorf("%+v at append %d: balance %d, want %d", cut, step, balance, sum)
				}
				a.Kill()
				<-a.Done()
			})
		}
		if crashes == 0 {
			if step != messages+1 {
				t.Errorf("%d appends", step-1)
			}
			return
		}
	}
}
