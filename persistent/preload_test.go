package persistent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

// meddler is a journal in which something happens just before a stream is acquired.
type meddler struct {
	journal.Journal
	before func()
	err    error
}

func (m *meddler) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if m.err != nil {
		return nil, m.err
	}
	if m.before != nil {
		m.before()
	}
	return m.Journal.Acquire(ctx, name)
}

// §8: what was read before the stream is acquired is completed by what the owner before has stored until then; if the stream
// is another by then, it is read anew.
func TestPreload(t *testing.T) {
	for name, meddle := range map[string]func(t *testing.T, j journal.Journal, old *actor){
		"nothing": func(*testing.T, journal.Journal, *actor) {},
		"appends": func(t *testing.T, _ journal.Journal, old *actor) {
			do(t, old, func(c *persistent.Context[event], _ *shelf) {
				if err := c.PersistAsync(put("late"), note(9)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		},
		"dropped and made anew": func(t *testing.T, j journal.Journal, old *actor) {
			old.Kill()
			<-old.Done()
			if err := acquire(t, j).Drop(t.Context()); err != nil {
				t.Error(err)
			}
			a, s := open(t, j, persistent.Options{})
			do(t, a, func(c *persistent.Context[event], _ *shelf) {
				if err := c.PersistAsync(put("another life")); err != nil {
					t.Error(err)
				}
			})
			stop(t, a, s)
		},
		"another end": func(t *testing.T, j journal.Journal, old *actor) {
			// A snapshot and the discarding of metas leave nothing behind what was preloaded to go on from.
			do(t, old, func(c *persistent.Context[event], _ *shelf) {
				if err := c.PersistAsync(put("x"), put("y")); err != nil {
					t.Error(err)
				}
			})
			_ = old.Stop(t.Context())
			st := acquire(t, j)
			if err := st.DiscardMeta(t.Context(), st.Acquired().End+1); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := memory.New()
				old, _ := open(t, j, persistent.Options{})
				do(t, old, func(c *persistent.Context[event], _ *shelf) {
					if err := c.PersistAsync(put("a", "b"), note(7)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				m := &meddler{Journal: j, before: func() { meddle(t, j, old) }}
				a, s := open(t, m, persistent.Options{Preload: true})
				got := stop(t, a, s)
				plain, ps := open(t, j, persistent.Options{})
				if want := stop(t, plain, ps); got != want {
					t.Errorf("preloaded: %s, want %s", got, want)
				}
				old.Kill()
				<-old.Done()
			})
		})
	}
}

// §8: a stream that cannot be read is not taken from its owner.
func TestPreloadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.NewStore(memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := store.Open()
		old, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
		do(t, old, func(c *persistent.Context[event], _ *shelf) {
			if err := c.PersistAsync(put("a")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := store.Damage("shelf", 1, memory.DamageMeta); err != nil {
			t.Fatal(err)
		}
		m := &meddler{Journal: j, before: func() { t.Error("acquired") }}
		if _, err := persistent.Open(t.Context(), m, "shelf", newShelf(), codec{}, persistent.Options{Preload: true}); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("opened: %v", err)
		}
		if err := old.CheckOwner(t.Context()); err != nil {
			t.Error(err)
		}
		stop(t, old, s)
	})
}
