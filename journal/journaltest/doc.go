// Package journaltest is the conformance suite of journal drivers. It proves every rule of
// package journal's contract against a real store:
//
//	func TestConformance(t *testing.T) {
//		journaltest.Run(t, journaltest.Config{
//			NewStore: func(t testing.TB) journaltest.Store {
//				dir := t.TempDir()
//				return journaltest.Store{
//					Open: func(ctx context.Context) (journal.Journal, error) { return mine.Open(ctx, dir) },
//				}
//			},
//			Persistent: true,
//		})
//	}
//
// A driver declares what else its tests can do (several handles, power cuts, hooks,
// damage), and gets more rules for it. A rule that needs an undeclared ability is not run, and
// listed in the log. Each rule gets a new store and a time limit; a failed rule says what the
// contract promises and what was seen. Random rules log their seed; HOLDFAST_SEED repeats
// one. HOLDFAST_SOAK=1 multiplies the counts by 20, the given ones too.
//
// The suite is itself tested against journals that break one rule each; see its tests.
package journaltest
