package journaltest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

type records = iter.Seq2[*journal.Record, error]

// mapRecords passes records through f, which returns what to yield instead.
func mapRecords(seq records, f func(*journal.Record) []*journal.Record) records {
	return func(yield func(*journal.Record, error) bool) {
		for rec, err := range seq {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range f(rec) {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

func copyRecord(r *journal.Record) *journal.Record {
	c := *r
	c.Meta = slices.Clone(r.Meta)
	return &c
}

// readMetaFlaw is a flaw in ReadMeta.
func readMetaFlaw(f func(ctx context.Context, in journal.Reader, from, to uint64) records, rules ...string) flawed {
	return flawed{by: rules, make: func(*store) *flaw { return &flaw{readMeta: f} }}
}

// infoFlaw is a flaw in Info.
func infoFlaw(f func(info *journal.Info), rules ...string) flawed {
	return flawed{by: rules, make: func(*store) *flaw {
		return &flaw{info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			info, err := in.Info(ctx)
			f(&info)
			return info, err
		}}
	}}
}

var readFlaws = map[string]flawed{
	"a record is left out": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		n := 0
		return mapRecords(in.ReadMeta(ctx, from, to), func(r *journal.Record) []*journal.Record {
			if n++; n == 3 {
				return nil
			}
			return []*journal.Record{r}
		})
	}, "append/stores", "read/bulk", "read/ranges", "race/two-owners", "race/one-stream"),
	"records are read in another order": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return func(yield func(*journal.Record, error) bool) {
			var held *journal.Record
			n := 0
			for rec, err := range in.ReadMeta(ctx, from, to) {
				if n++; err == nil && n == 2 {
					held = copyRecord(rec)
					continue
				}
				if !yield(rec, err) || held != nil && !yield(held, nil) {
					return
				}
				held = nil
			}
			if held != nil {
				yield(held, nil)
			}
		}
	}, "append/stores", "read/bulk", "read/ranges", "race/two-owners"),
	"the end of a long stream is not read": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		n := 0
		return mapRecords(in.ReadMeta(ctx, from, to), func(r *journal.Record) []*journal.Record {
			if n++; n > 90 {
				return nil
			}
			return []*journal.Record{r}
		})
	}, "read/bulk"),
	"from > to reads something": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return in.ReadMeta(ctx, min(from, to), max(from, to))
	}, "read/empty-range"),
	"to is taken for exclusive": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return mapRecords(in.ReadMeta(ctx, from, to), func(r *journal.Record) []*journal.Record {
			if r.First == to {
				return nil
			}
			return []*journal.Record{r}
		})
	}, "read/ranges"),
	"a sequence can be ranged over once": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		used := false
		return func(yield func(*journal.Record, error) bool) {
			if !used {
				used = true
				in.ReadMeta(ctx, from, to)(yield)
			}
		}
	}, "read/early-end"),
	"metas come with bodies": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return mapRecords(in.ReadMeta(ctx, from, to), func(r *journal.Record) []*journal.Record {
			r.Body = [][]byte{}
			return []*journal.Record{r}
		})
	}, "append/stores"),
	"discarded is taken for missing": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return func(yield func(*journal.Record, error) bool) {
			next := uint64(0)
			for rec, err := range in.ReadMeta(ctx, from, to) {
				if err == nil && next != 0 && rec.First != next {
					yield(nil, &journal.CorruptError{Seq: next, What: "record missing"})
					return
				}
				if !yield(rec, err) {
					return
				}
				if next = rec.Last() + 1; next%4 == 0 {
					continue
				}
			}
		}
	}, "discard/while-reading"),
	"bodies come in stored order": {by: by("read/bodies-order"), make: func(*store) *flaw {
		return &flaw{readBodies: func(ctx context.Context, in journal.Reader, first []uint64) records {
			first = slices.Clone(first)
			slices.Sort(first)
			return in.ReadBodies(ctx, first)
		}}
	}},
	"bodies are shared among readers": {by: by("append/stores", "discard/bodies"), make: func(*store) *flaw {
		var mu sync.Mutex
		cache := map[uint32]*journal.Record{}
		return &flaw{readBodies: func(ctx context.Context, in journal.Reader, first []uint64) records {
			return mapRecords(in.ReadBodies(ctx, first), func(r *journal.Record) []*journal.Record {
				mu.Lock()
				defer mu.Unlock()
				if c := cache[r.CRC]; c != nil {
					r.Body = c.Body
				} else {
					r.Body = append(r.Body, nil)
					cache[r.CRC] = &journal.Record{Body: slices.Clone(r.Body)}
				}
				return []*journal.Record{r}
			})
		}}
	}},
	"reading makes streams": {by: by("read/unknown-stream"), make: func(st *store) *flaw {
		return &flaw{info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			info, err := in.Info(ctx)
			if err == nil && info.Epoch == 0 {
				_, err = st.direct.Acquire(ctx, info.Name)
			}
			return info, err
		}}
	}},
	"reads of a cache": {by: by("read/linearizable"), make: func(*store) *flaw {
		var n atomic.Int64
		var mu sync.Mutex
		cached := map[string]journal.Info{}
		return &flaw{info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
			info, err := in.Info(ctx)
			mu.Lock()
			defer mu.Unlock()
			if c, ok := cached[info.Name]; ok && n.Add(1)%8 != 0 {
				return c, err
			}
			cached[info.Name] = info
			return info, err
		}}
	}},
}

var discardFlaws = map[string]flawed{
	"discards reach into what is appended later": {by: by("discard/bodies-beyond-end"), make: func(*store) *flaw {
		var mu sync.Mutex
		high := map[string]uint64{}
		return &flaw{
			discardBodies: func(ctx context.Context, in journal.Stream, ranges []journal.Range) error {
				mu.Lock()
				for _, r := range ranges {
					high[in.Acquired().Name] = max(high[in.Acquired().Name], r.To)
				}
				mu.Unlock()
				return in.DiscardBodies(ctx, ranges)
			},
			append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
				err := in.Append(ctx, after, rec)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && rec.Last() <= high[in.Acquired().Name] {
					return in.DiscardBodies(ctx, []journal.Range{{From: rec.First, To: rec.Last()}})
				}
				return err
			},
		}
	}},
	"discards of a part of a record": {by: by("discard/bodies"), make: func(*store) *flaw {
		return &flaw{discardBodies: func(ctx context.Context, in journal.Stream, ranges []journal.Range) error {
			wider := slices.Clone(ranges)
			for i := range wider {
				if wider[i].From <= wider[i].To {
					wider[i].From -= min(wider[i].From, 2)
				}
			}
			return in.DiscardBodies(ctx, wider)
		}}
	}},
	"only the first range is discarded": {by: by("discard/bodies"), make: func(*store) *flaw {
		return &flaw{discardBodies: func(ctx context.Context, in journal.Stream, ranges []journal.Range) error {
			return in.DiscardBodies(ctx, ranges[:min(1, len(ranges))])
		}}
	}},
	"discarding metas takes the bodies along": {by: by("discard/meta-keeps-bodies", "read/bulk"), make: func(*store) *flaw {
		return &flaw{discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
			if err := in.DiscardMeta(ctx, low); err != nil {
				return err
			}
			info, err := in.Info(ctx)
			if err != nil {
				return err
			}
			return in.DiscardBodies(ctx, []journal.Range{{From: 0, To: info.Low - 1}})
		}}
	}},
	"a record at low is discarded": {by: by("discard/meta"), make: func(*store) *flaw {
		return &flaw{discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
			if low > 0 && low < 1<<63 {
				low++
			}
			for rec, err := range in.ReadMeta(ctx, low, low) {
				if err == nil && rec.Count > 1 {
					low = rec.Last() + 1 // a record that holds low is not kept
				}
			}
			return in.DiscardMeta(ctx, low)
		}}
	}},
	"metas are never discarded": {by: by("discard/meta", "discard/everything", "durable/reopen"), make: func(*store) *flaw {
		return &flaw{discardMeta: func(context.Context, journal.Stream, uint64) error { return nil }}
	}},
	"metas below what is discarded are looked for": {by: by("discard/meta"), make: func(*store) *flaw {
		return &flaw{discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
			info, err := in.Info(ctx)
			if err == nil && low <= info.End && info.Low > info.End {
				err = &journal.CorruptError{Stream: info.Name, Seq: low, What: "record missing"}
			}
			return errors.Join(err, in.DiscardMeta(ctx, low))
		}}
	}},
	"discarding again is an error": {by: by("discard/repeated"), make: func(*store) *flaw {
		var mu sync.Mutex
		seen := map[uint64]bool{}
		return &flaw{discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
			mu.Lock()
			defer mu.Unlock()
			if seen[low] {
				return fmt.Errorf("discard: %w", journal.ErrConflict)
			}
			seen[low] = true
			return in.DiscardMeta(ctx, low)
		}}
	}},
	"Low stays": infoFlaw(func(info *journal.Info) { info.Low = min(info.Low, 1) }, "discard/meta", "discard/everything", "streams/drop"),
	"the end's time is forgotten": infoFlaw(func(info *journal.Info) {
		if info.Low > info.End {
			info.EndTime = 0
		}
	}, "discard/everything", "streams/drop"),
	"more metas are discarded than was said": {by: by("durable/power-cut-discards"), make: func(*store) *flaw {
		return &flaw{discardMeta: func(ctx context.Context, in journal.Stream, low uint64) error {
			info, err := in.Info(ctx)
			if err == nil && low < info.End {
				low = min(low+5, info.End)
			}
			return errors.Join(err, in.DiscardMeta(ctx, low))
		}}
	}},
	"highest seq reset by discarding everything": {by: by("discard/everything"), make: func(st *store) *flaw {
		return &flaw{acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
			s, err := in.Acquire(ctx, name)
			if err != nil {
				return nil, err
			}
			if at := s.Acquired(); at.End > 0 && at.Low > at.End && at.EndTime > 0 {
				return &resetStream{Stream: s}, nil
			}
			return s, nil
		}}
	}},
}

// resetStream is a stream that begins at seq 1 again.
type resetStream struct{ journal.Stream }

func (s *resetStream) Acquired() journal.Info {
	info := s.Stream.Acquired()
	info.End, info.EndCRC, info.EndTime, info.Low = 0, 0, 0, 1
	return info
}

var partFlaws = map[string]flawed{
	"parts are ignored": {by: by("parts/write-read", "parts/list", "parts/snapshots", "durable/power-cut", "durable/reopen", "race/one-stream", "unknown/changes"), make: func(*store) *flaw {
		return &flaw{writePart: func(context.Context, journal.Stream, string, []byte) error { return nil }}
	}},
	"parts are not replaced": {by: by("parts/write-read", "durable/power-cut"), make: func(*store) *flaw {
		return &flaw{writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
			if _, err := in.ReadPart(ctx, name); err == nil {
				return nil
			}
			return in.WritePart(ctx, name, data)
		}}
	}},
	"parts are in the handle's memory": {by: by("parts/write-read", "parts/snapshots", "durable/reopen"), make: func(*store) *flaw {
		var mu sync.Mutex
		held := map[journal.Reader]map[string][]byte{}
		return &flaw{
			writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if held[in] == nil {
					held[in] = map[string][]byte{}
				}
				held[in][name] = slices.Clone(data)
				return nil
			},
			readPart: func(ctx context.Context, in journal.Reader, name string) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if data, ok := held[in][name]; ok {
					return slices.Clone(data), nil
				}
				return in.ReadPart(ctx, name)
			},
		}
	}},
	"parts are listed in any order": {by: by("parts/list"), make: func(*store) *flaw {
		return &flaw{parts: func(ctx context.Context, in journal.Reader, prefix string) ([]string, error) {
			names, err := in.Parts(ctx, prefix)
			slices.Reverse(names)
			return names, err
		}}
	}},
	"a page of parts is listed": {by: by("parts/list"), make: func(*store) *flaw {
		return &flaw{parts: func(ctx context.Context, in journal.Reader, prefix string) ([]string, error) {
			names, err := in.Parts(ctx, prefix)
			return names[:min(64, len(names))], err
		}}
	}},
	"one part is deleted": {by: by("parts/delete"), make: func(*store) *flaw {
		return &flaw{deleteParts: func(ctx context.Context, in journal.Stream, names []string) error {
			return in.DeleteParts(ctx, names[:min(1, len(names))])
		}}
	}},
	"a missing part cannot be deleted": {by: by("parts/delete", "unknown/changes"), make: func(*store) *flaw {
		return &flaw{deleteParts: func(ctx context.Context, in journal.Stream, names []string) error {
			for _, name := range names {
				if _, err := in.ReadPart(ctx, name); err != nil {
					return errors.Join(err, journal.ErrConflict)
				}
			}
			return in.DeleteParts(ctx, names)
		}}
	}},
	"parts are shared with the caller": {by: by("parts/ownership"), make: func(*store) *flaw {
		var mu sync.Mutex
		shared := map[string][]byte{}
		return &flaw{
			writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
				err := in.WritePart(ctx, name, data)
				mu.Lock()
				defer mu.Unlock()
				shared[name] = data
				return err
			},
			readPart: func(ctx context.Context, in journal.Reader, name string) ([]byte, error) {
				data, err := in.ReadPart(ctx, name)
				mu.Lock()
				defer mu.Unlock()
				if s, ok := shared[name]; ok && err == nil {
					return s, nil
				}
				return data, err
			},
		}
	}},
}

var streamFlaws = map[string]flawed{
	"dropped streams are not listed": {by: by("streams/list"), make: func(*store) *flaw {
		return &flaw{streams: func(ctx context.Context, in journal.Journal) iter.Seq2[journal.Info, error] {
			return func(yield func(journal.Info, error) bool) {
				for info, err := range in.Streams(ctx) {
					if !info.Dropped && !yield(info, err) {
						return
					}
				}
			}
		}}
	}},
	"highest seq reset by drop": {by: by("streams/again", "durable/reopen", "streams/drop"), make: func(*store) *flaw {
		return &flaw{
			acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
				s, err := in.Acquire(ctx, name)
				if err != nil {
					return nil, err
				}
				if r := s.Acquired(); r.Low > r.End && r.End > 0 {
					return &resetStream{Stream: s}, nil
				}
				return s, nil
			},
			info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
				info, err := in.Info(ctx)
				if info.Dropped {
					info.End, info.EndCRC, info.EndTime, info.Low = 0, 0, 0, 1
				}
				return info, err
			},
		}
	}},
	"drop only discards": {by: by("streams/drop", "streams/again", "streams/list", "unknown/changes", "streams/drop-ends-hold"), make: func(*store) *flaw {
		return &flaw{drop: func(ctx context.Context, in journal.Stream) error {
			names, err := in.Parts(ctx, "")
			return errors.Join(err, in.DiscardBodies(ctx, []journal.Range{{From: 0, To: 1 << 62}}), in.DiscardMeta(ctx, 1<<62), in.DeleteParts(ctx, names))
		}}
	}},
	"drop leaves parts": {by: by("streams/again"), make: func(*store) *flaw {
		var mu sync.Mutex
		left := map[string][]string{}
		return &flaw{
			drop: func(ctx context.Context, in journal.Stream) error {
				mu.Lock()
				defer mu.Unlock()
				names, err := in.Parts(ctx, "")
				if err == nil {
					left[in.Acquired().Name] = names
				}
				return in.Drop(ctx)
			},
			acquire: func(ctx context.Context, in journal.Journal, name string) (journal.Stream, error) {
				s, err := in.Acquire(ctx, name)
				mu.Lock()
				defer mu.Unlock()
				for _, part := range left[name] {
					if err == nil {
						err = s.WritePart(ctx, part, nil)
					}
				}
				return s, err
			},
		}
	}},
	"drop reaches streams of like names": {by: by("append/isolated"), make: func(st *store) *flaw {
		return &flaw{drop: func(ctx context.Context, in journal.Stream) error {
			st.mu.Lock()
			defer st.mu.Unlock()
			for name, s := range st.newest {
				if strings.HasPrefix(name, in.Acquired().Name) && s.Acquired().Name != in.Acquired().Name {
					_ = s.Drop(ctx)
				}
			}
			return in.Drop(ctx)
		}}
	}},
	"close ends nothing": {by: by("close/ends-all"), make: func(*store) *flaw {
		return &flaw{close: func(journal.Journal) error { return nil }}
	}},
	"close loses what is under way": {by: by("close/under-way", "close/not-fenced", "durable/reopen"), make: func(st *store) *flaw {
		var mu sync.Mutex
		last := map[string]journal.Stream{}
		return &flaw{
			append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
				r := *rec
				r.Buffered = true
				mu.Lock()
				defer mu.Unlock()
				last[in.Acquired().Name] = in
				return in.Append(ctx, after, &r)
			},
			close: func(in journal.Journal) error {
				if err := in.Close(); err != nil {
					return err
				}
				st.mem.Crash()
				return nil
			},
		}
	}},
}

// tolerant lets a reading end where it should fail.
func tolerant(seq records) records {
	return func(yield func(*journal.Record, error) bool) {
		for rec, err := range seq {
			if errors.Is(err, journal.ErrCorrupt) || !yield(rec, err) {
				return
			}
		}
	}
}

var damageFlaws = map[string]flawed{
	"damaged metas end the stream": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return tolerant(in.ReadMeta(ctx, from, to))
	}, "corrupt/header", "corrupt/meta", "corrupt/missing"),
	"damage is not named": readMetaFlaw(func(ctx context.Context, in journal.Reader, from, to uint64) records {
		return func(yield func(*journal.Record, error) bool) {
			for rec, err := range in.ReadMeta(ctx, from, to) {
				if err != nil {
					err = fmt.Errorf("read: %w", journal.ErrCorrupt)
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}, "corrupt/header", "corrupt/meta", "corrupt/missing"),
	"damaged bodies are skipped": {by: by("corrupt/body", "corrupt/header"), make: func(*store) *flaw {
		return &flaw{readBodies: func(ctx context.Context, in journal.Reader, first []uint64) records {
			return tolerant(in.ReadBodies(ctx, first))
		}}
	}},
}
