package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// §4: the memory journal keeps the whole contract, in each of its forms.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]memory.Options{
		"default":       {},
		"epoch records": {EpochRecords: true},
		"small limits":  {MaxRecordBytes: 128 << 10, MaxPartBytes: 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			journaltest.Run(t, journaltest.Config{
				NewStore: func(t testing.TB) journaltest.Store { return newStore(t, opts) },
				Shared:   true, Persistent: true, Hooks: true, Crashes: true, Damages: true, Coordinates: true, Imports: true,
			})
		})
	}
}

func newStore(t testing.TB, opts memory.Options) journaltest.Store {
	store, err := memory.NewStore(opts)
	if err != nil {
		t.Fatal(err)
	}
	var hook journaltest.Hook
	return journaltest.Store{
		Open: func(context.Context) (journal.Journal, error) {
			return fault.New(store.Open(), fault.Options{Hook: hook}), nil
		},
		SetHook: func(h journaltest.Hook) { hook = h },
		Crash:   func(testing.TB) { store.Crash() },
		Damage: func(_ context.Context, d journaltest.Damage) error {
			how, ok := map[journaltest.DamageKind]memory.Damage{
				journaltest.FlipHeader: memory.DamageHeader,
				journaltest.FlipMeta:   memory.DamageMeta,
				journaltest.FlipBody:   memory.DamageBody,
				journaltest.Remove:     memory.DamageRemove,
			}[d.Kind]
			if !ok {
				return errors.ErrUnsupported // its headers are not stored as bytes
			}
			return store.Damage(d.Stream, d.Seq, how)
		},
	}
}
