package journaltest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// flawed is a way to break the contract, and the rules that must reject it.
type flawed struct {
	by    []string
	hangs bool // found by a time limit only
	make  func(st *store) *flaw
}

func by(rules ...string) []string { return rules }

// unproved are rules that no flaw here breaks.
var unproved = []string{
	"corrupt/newer-version", // the memory journal keeps no header bytes to change
}

// flaws returns all broken journals by name.
func flaws() map[string]flawed {
	all := map[string]flawed{}
	for _, group := range []map[string]flawed{appendFlaws, startFlaws, fenceFlaws, readFlaws, discardFlaws, partFlaws, streamFlaws, damageFlaws, memberFlaws, importFlaws} {
		for name, f := range group {
			all[name] = f
		}
	}
	return all
}

// reseal returns rec as another owner's, or another record, with valid CRCs.
func reseal(rec *journal.Record, prev uint32, change func(r *journal.Record)) *journal.Record {
	r := *rec
	change(&r)
	if err := r.Seal(prev); err != nil {
		panic(err)
	}
	return &r
}

func isFenced(err error) bool { return errors.Is(err, journal.ErrFenced) }

// owner returns the newest owner's stream.
func (st *store) owner(name string) journal.Stream {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.newest[name]
}

var appendFlaws = map[string]flawed{
	"unsynced acknowledgement": {by: by("durable/power-cut", "durable/buffered"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			r := *rec
			r.Buffered = true
			return in.Append(ctx, after, &r)
		}}
	}},
	"lost tail": {by: by("acquire/epochs", "race/two-owners", "race/two-owners-flaky", "race/three-owners-discarding", "fence/stored-then-fenced"), make: lostTail},
	"half a batch": {by: by("append/stores", "race/two-owners", "race/streams"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if rec.Count > 3 {
				rec = reseal(rec, rec.PrevCRC, func(r *journal.Record) { r.Count /= 2 })
			}
			return in.Append(ctx, after, rec)
		}}
	}},
	"half a record": {by: by("append/stores", "append/shapes", "race/two-owners", "race/three-owners-discarding", "limits/record"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			err := in.Append(ctx, after, rec)
			if err == nil && rec.Count != 2 {
				_ = in.DiscardBodies(ctx, []journal.Range{{From: rec.First, To: rec.Last()}})
			}
			return err
		}}
	}},
	"gap": {by: by("append/conflict"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			info, err := in.Info(ctx)
			if err != nil || after <= info.End || rec.Epoch != info.Epoch {
				return in.Append(ctx, after, rec)
			}
			filler := reseal(rec, info.EndCRC, func(r *journal.Record) {
				r.First, r.Count, r.Kind, r.Time, r.Meta, r.Body = info.End+1, after-info.End, journal.KindSkip, info.EndTime, nil, nil
			})
			if err := in.Append(ctx, info.End, filler); err != nil {
				return err
			}
			return in.Append(ctx, after, reseal(rec, filler.CRC, func(*journal.Record) {}))
		}}
	}},
	"skips are not skipped": {by: by("append/skip"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if rec.Count > math.MaxUint32 {
				rec = reseal(rec, rec.PrevCRC, func(r *journal.Record) { r.Count = uint64(uint32(r.Count)) })
			}
			return in.Append(ctx, after, rec)
		}}
	}},
	"unsealed records accepted": {by: by("append/invalid"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			err := in.Append(ctx, after, rec)
			if errors.Is(err, journal.ErrInvalid) && rec.First == after+1 && rec.Count > 0 {
				return in.Append(ctx, after, reseal(rec, rec.PrevCRC, func(*journal.Record) {}))
			}
			return err
		}}
	}},
	"records of other epochs accepted": {by: by("append/invalid"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			return in.Append(ctx, after, reseal(rec, rec.PrevCRC, func(r *journal.Record) { r.Epoch = in.Acquired().Epoch }))
		}}
	}},
	"repeated append is a conflict": {by: by("append/repeat", "fence/stored-then-fenced", "unknown/append", "unknown/many"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if info, err := in.Info(ctx); err == nil && after < info.End {
				return fmt.Errorf("append: %w", journal.ErrConflict)
			}
			return in.Append(ctx, after, rec)
		}}
	}},
	"repeated append is stored again": {by: by("append/repeat", "unknown/append", "unknown/many", "race/two-owners-flaky", "race/three-owners-flaky-discarding"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			info, err := in.Info(ctx)
			if err == nil && after < info.End && rec.Epoch == info.Epoch {
				return in.Append(ctx, info.End, reseal(rec, info.EndCRC, func(r *journal.Record) { r.First, r.Time = info.End+1, info.EndTime }))
			}
			return in.Append(ctx, after, rec)
		}}
	}},
	"stored, then told as fenced": {by: by("fence/stored-then-fenced", "unknown/stored-then-fenced"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if info, err := in.Info(ctx); err == nil && info.Epoch > rec.Epoch {
				return fmt.Errorf("append: %w", journal.ErrFenced)
			}
			return in.Append(ctx, after, rec)
		}}
	}},
	"keeps the caller's record": {by: by("append/stores", "race/streams"), make: func(*store) *flaw {
		var mu sync.Mutex
		kept := map[string]*journal.Record{} // the last body, by stream
		return &flaw{
			append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
				mu.Lock()
				defer mu.Unlock()
				err := in.Append(ctx, after, rec)
				if err == nil {
					kept[in.Acquired().Name] = &journal.Record{Header: rec.Header, Meta: rec.Meta, Body: slices.Clone(rec.Body)}
				}
				return err
			},
			readBodies: func(ctx context.Context, in journal.Reader, first []uint64) iter.Seq2[*journal.Record, error] {
				return func(yield func(*journal.Record, error) bool) {
					info, _ := in.Info(ctx)
					for rec, err := range in.ReadBodies(ctx, first) {
						mu.Lock()
						if k := kept[info.Name]; k != nil && err == nil && rec.First == k.First {
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
	"one stream's appends end up in another": {by: by("append/isolated"), make: func(st *store) *flaw {
		return &flaw{acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
			if name == "A" {
				name = "a" // names that do not tell upper from lower case
			}
			return in.Acquire(ctx, name)
		}}
	}},
	"accepts what is too large": {by: by("limits/record", "limits/part"), make: func(*store) *flaw {
		return &flaw{limits: func(l journal.Limits) journal.Limits {
			return journal.Limits{MaxRecordBytes: l.MaxRecordBytes / 2, MaxPartBytes: l.MaxPartBytes / 2}
		}}
	}},
	"stores less than it declares": {by: by("limits/record", "limits/part"), make: func(*store) *flaw {
		return &flaw{limits: func(l journal.Limits) journal.Limits {
			return journal.Limits{MaxRecordBytes: l.MaxRecordBytes + 1, MaxPartBytes: l.MaxPartBytes + 1}
		}}
	}},
	"shortens names": {by: by("limits/names"), make: func(*store) *flaw {
		return &flaw{writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
			return in.WritePart(ctx, name[:min(len(name), 199)], data)
		}}
	}},
	"accepts any name": {by: by("limits/names"), make: func(*store) *flaw {
		return &flaw{acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
			s, err := in.Acquire(ctx, name)
			if errors.Is(err, journal.ErrInvalid) {
				return in.Acquire(ctx, "x")
			}
			return s, err
		}}
	}},
	"ignores the context": {by: by("context/cut"), hangs: true, make: func(*store) *flaw {
		return &flaw{hook: func(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }}
	}},
	"gives up with an error that means nothing": {by: by("context/ended"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if ctx.Err() != nil {
				return errors.New("broken pipe")
			}
			return in.Append(ctx, after, rec)
		}}
	}},
}

// lostTail is a store that keeps the last record of each stream back, until the next call. A takeover loses
// it.
func lostTail(st *store) *flaw {
	type held struct {
		s   journal.Stream
		rec *journal.Record
	}
	var mu sync.Mutex
	tails := map[string]held{}
	flush := func(ctx context.Context, name string) {
		mu.Lock()
		defer mu.Unlock()
		if h, ok := tails[name]; ok {
			_ = h.s.Append(context.WithoutCancel(ctx), h.rec.First-1, h.rec)
			delete(tails, name)
		}
	}
	// The names of readers are not known, so all are flushed.
	flushAll := func(ctx context.Context) {
		mu.Lock()
		var names []string
		for name := range tails {
			names = append(names, name)
		}
		mu.Unlock()
		for _, name := range names {
			flush(ctx, name)
		}
	}
	return &flaw{
		acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
			mu.Lock()
			delete(tails, name)
			mu.Unlock()
			return in.Acquire(ctx, name)
		},
		append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			flush(ctx, in.Acquired().Name)
			info, err := in.Info(ctx)
			if err != nil || info.End != after || info.Epoch != rec.Epoch || rec.First != after+1 {
				return in.Append(ctx, after, rec)
			}
			r := *rec
			r.Meta = slices.Clone(rec.Meta)
			r.Body = [][]byte{slices.Concat(rec.Body...)}
			mu.Lock()
			tails[in.Acquired().Name] = held{in, &r}
			mu.Unlock()
			return nil
		},
		info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			flushAll(ctx)
			return in.Info(ctx)
		},
		readMeta: func(ctx context.Context, in journal.Reader, from, to uint64) iter.Seq2[*journal.Record, error] {
			flushAll(ctx)
			return in.ReadMeta(ctx, from, to)
		},
		readBodies: func(ctx context.Context, in journal.Reader, first []uint64) iter.Seq2[*journal.Record, error] {
			flushAll(ctx)
			return in.ReadBodies(ctx, first)
		},
	}
}

var fenceFlaws = map[string]flawed{
	"stale epoch accepted by append": {
		by: by("fence/append", "late/append", "late/steps", "late/acquire", "acquire/concurrent", "unknown/lost-then-fenced", "race/two-owners", "fence/same-place"),
		make: func(st *store) *flaw {
			return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
				err := in.Append(ctx, after, rec)
				if !isFenced(err) {
					return err
				}
				newest := st.owner(in.Acquired().Name)
				info, infoErr := newest.Info(ctx)
				if infoErr != nil || info.Dropped {
					return err
				}
				return newest.Append(ctx, info.End, reseal(rec, info.EndCRC, func(r *journal.Record) {
					r.First, r.Epoch, r.Time = info.End+1, info.Epoch, max(r.Time, info.EndTime)
				}))
			}}
		},
	},
	"stale epoch accepted by parts": {by: by("fence/write-part", "fence/add-part", "fence/delete-parts"), make: func(st *store) *flaw {
		return &flaw{
			writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
				err := in.WritePart(ctx, name, data)
				if isFenced(err) {
					return st.owner(in.Acquired().Name).WritePart(ctx, name, data)
				}
				return err
			},
			deleteParts: func(ctx context.Context, in journal.Stream, names []string) error {
				err := in.DeleteParts(ctx, names)
				if isFenced(err) {
					return st.owner(in.Acquired().Name).DeleteParts(ctx, names)
				}
				return err
			},
		}
	}},
	"stale epoch accepted by discards": {by: by("fence/discard-bodies", "fence/discard-meta"), make: func(st *store) *flaw {
		return &flaw{
			discardBodies: func(ctx context.Context, in journal.Stream, ranges []journal.Range) error {
				_ = st.owner(in.Acquired().Name).DiscardBodies(ctx, ranges)
				return in.DiscardBodies(ctx, ranges) // refused, but too late
			},
			discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
				_ = st.owner(in.Acquired().Name).DiscardMeta(ctx, low)
				return in.DiscardMeta(ctx, low)
			},
		}
	}},
	"stale epoch accepted by drop": {by: by("fence/drop"), make: func(st *store) *flaw {
		return &flaw{drop: func(ctx context.Context, in journal.Stream) error {
			return st.owner(in.Acquired().Name).Drop(ctx)
		}}
	}},
	// A store that knows insert-if-absent only, and removes what is discarded.
	"late insert of an old owner": {by: by("late/append", "late/steps"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			err := in.Append(ctx, after, rec)
			if info, _ := in.Info(ctx); isFenced(err) && rec.First < info.Low && info.UID == rec.UID {
				return nil
			}
			return err
		}}
	}},
	"late insert into a dropped stream": {by: by("late/append-to-dropped"), make: func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			err := in.Append(ctx, after, rec)
			if info, _ := in.Info(ctx); isFenced(err) && (info.Dropped || info.UID != rec.UID) {
				return nil
			}
			return err
		}}
	}},
	"drop forgets what is under way": {by: by("late/own-drop"), make: func(st *store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			err := in.Append(ctx, after, rec)
			if errors.Is(err, journal.ErrClosed) { // comes back with the stream
				s, acquireErr := st.direct.Acquire(ctx, in.Acquired().Name)
				if acquireErr != nil {
					return err
				}
				at := s.Acquired()
				return s.Append(ctx, at.End, reseal(rec, at.EndCRC, func(r *journal.Record) { r.UID, r.Epoch, r.First = at.UID, at.Epoch, at.End+1 }))
			}
			return err
		}}
	}},
	"one epoch for two owners": {by: by("acquire/epochs", "acquire/concurrent", "unknown/acquire", "fence/append"), make: func(st *store) *flaw {
		return &flaw{acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
			if s := st.owner(name); s != nil {
				return s, nil
			}
			return in.Acquire(ctx, name)
		}}
	}},
	"a new stream has no uid": {by: by("acquire/new"), make: func(st *store) *flaw {
		return &flaw{info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			info, err := in.Info(ctx)
			if info.End == 0 {
				info.UID = journal.UID{}
			}
			return info, err
		}}
	}},
	"acquire waits for release": {by: by("acquire/waits-for-nobody"), hangs: true, make: func(st *store) *flaw {
		var mu sync.Mutex
		held := map[string]chan struct{}{}
		return &flaw{
			acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
				mu.Lock()
				before := held[name]
				held[name] = make(chan struct{})
				mu.Unlock()
				if before != nil {
					select {
					case <-before:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return in.Acquire(ctx, name)
			},
			release: func(in journal.Stream) error {
				mu.Lock()
				defer mu.Unlock()
				close(held[in.Acquired().Name])
				return in.Release()
			},
		}
	}},
	"fenced owners cannot read": {by: by("fence/reads"), make: func(st *store) *flaw {
		return &flaw{info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			info, err := in.Info(ctx)
			if s, ok := in.(journal.Stream); ok && err == nil && s.Acquired().Epoch < info.Epoch {
				return info, fmt.Errorf("info: %w", journal.ErrFenced)
			}
			return info, err
		}}
	}},
	"release ends nothing": {by: by("acquire/release"), make: func(*store) *flaw {
		return &flaw{release: func(journal.Stream) error { return nil }}
	}},
	"release fences": {by: by("acquire/release"), make: func(st *store) *flaw {
		return &flaw{release: func(in journal.Stream) error {
			if _, err := st.direct.Acquire(context.Background(), in.Acquired().Name); err != nil {
				return err
			}
			return in.Release()
		}}
	}},
}
