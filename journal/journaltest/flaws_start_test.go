package journaltest_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// startWith is a flaw of StartAppend, which calls done with what f returns.
func startWith(f func(in journal.Stream, after uint64, rec *journal.Record) error) func(*store) *flaw {
	return func(*store) *flaw {
		return &flaw{start: func(in journal.Stream, after uint64, rec *journal.Record, done func(error)) {
			go func() { done(f(in, after, rec)) }()
		}}
	}
}

func appendNow(in journal.Stream, after uint64, rec *journal.Record) error {
	return in.Append(context.Background(), after, rec)
}

// muted is a flaw of StartAppend, which is not answered if that would be with err.
func muted(err error) func(*store) *flaw {
	return func(*store) *flaw {
		return &flaw{start: func(in journal.Stream, after uint64, rec *journal.Record, done func(error)) {
			startAppend(in, after, rec, func(e error) {
				if !errors.Is(e, err) {
					done(e)
				}
			})
		}}
	}
}

// startFlaws are those of StartAppend alone: Append does as it should.
var startFlaws = map[string]flawed{
	"starts are answered unsynced": {by: by("start/power-cut"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		r := *rec
		r.Buffered = true
		return appendNow(in, after, &r)
	})},
	"starts are answered and not stored": {by: by("start/stores", "start/power-cut", "start/under-way"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		if rec.Count == 2 {
			return nil
		}
		return appendNow(in, after, rec)
	})},
	"starts lose bodies": {by: by("start/stores", "start/power-cut"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		err := appendNow(in, after, rec)
		if err == nil {
			_ = in.DiscardBodies(context.Background(), []journal.Range{{From: rec.First, To: rec.Last()}})
		}
		return err
	})},
	"starts are answered twice": {by: by("start/stores", "start/repeat"), make: func(*store) *flaw {
		return &flaw{start: func(in journal.Stream, after uint64, rec *journal.Record, done func(error)) {
			done(in.Append(context.Background(), after, rec))
			done(nil)
		}}
	}},
	"refused starts are answered twice": {by: by("start/refused", "start/fenced", "start/closed", "start/under-way"), make: func(*store) *flaw {
		return &flaw{start: func(in journal.Stream, after uint64, rec *journal.Record, done func(error)) {
			err := in.Append(context.Background(), after, rec)
			done(err)
			if err != nil {
				done(err)
			}
		}}
	}},
	"starts know no repetition": {by: by("start/repeat", "start/fenced"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		if info, _ := in.Info(context.Background()); rec.First <= info.End {
			return journal.ErrConflict
		}
		return appendNow(in, after, rec)
	})},
	"starts are not checked": {by: by("start/refused"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		info, err := in.Info(context.Background())
		if err != nil || rec.Epoch != info.Epoch || rec.First <= info.End {
			return appendNow(in, after, rec)
		}
		return appendNow(in, info.End, reseal(rec, info.EndCRC, func(r *journal.Record) { r.First = info.End + 1 }))
	})},
	"starts are not fenced": {by: by("start/fenced"), make: func(st *store) *flaw {
		return startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
			err := appendNow(in, after, rec)
			if !isFenced(err) {
				return err
			}
			newest := st.owner(in.Acquired().Name)
			info, infoErr := newest.Info(context.Background())
			if infoErr != nil {
				return err
			}
			return appendNow(newest, info.End, reseal(rec, info.EndCRC, func(r *journal.Record) {
				r.First, r.Epoch, r.Time = info.End+1, info.Epoch, max(r.Time, info.EndTime)
			}))
		})(st)
	}},
	"starts after the end are taken for stored": {by: by("start/closed"), make: startWith(func(in journal.Stream, after uint64, rec *journal.Record) error {
		if err := appendNow(in, after, rec); !errors.Is(err, journal.ErrClosed) {
			return err
		}
		return nil
	})},
	"refused starts are not answered":  {by: by("start/refused"), hangs: true, make: muted(journal.ErrConflict)},
	"fenced starts are not answered":   {by: by("start/fenced"), hangs: true, make: muted(journal.ErrFenced)},
	"closing forgets what was started": {by: by("start/closed", "start/under-way"), hangs: true, make: muted(journal.ErrClosed)},
	"starts keep the caller's record": {by: by("start/stores"), make: func(*store) *flaw {
		var mu sync.Mutex
		kept := map[uint64]*journal.Record{}
		return &flaw{
			start: func(in journal.Stream, after uint64, rec *journal.Record, done func(error)) {
				body := slices.Clone(rec.Body) // the same bytes
				startAppend(in, after, rec, func(err error) {
					if err == nil {
						mu.Lock()
						kept[rec.First] = &journal.Record{Body: body}
						mu.Unlock()
					}
					done(err)
				})
			},
			readBodies: func(ctx context.Context, in journal.Reader, first []uint64) iter.Seq2[*journal.Record, error] {
				return func(yield func(*journal.Record, error) bool) {
					for rec, err := range in.ReadBodies(ctx, first) {
						mu.Lock()
						if k := kept[rec.First]; k != nil && err == nil {
							rec.Body = k.Body
						}
						mu.Unlock()
						if !yield(rec, err) {
							return
						}
					}
				}
			},
		}
	}},
}
