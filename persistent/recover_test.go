package persistent_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

func acquire(t *testing.T, j journal.Journal) journal.Stream {
	t.Helper()
	st, err := j.Acquire(t.Context(), "shelf")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// appendRaw appends a record as an owner of the stream other than an actor.
func appendRaw(t *testing.T, st journal.Stream, kind journal.Kind, count uint64, meta []byte) {
	t.Helper()
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &journal.Record{Header: journal.Header{UID: info.UID, Epoch: info.Epoch, First: info.End + 1, Count: count, Kind: kind, Time: info.EndTime + 5}, Meta: meta}
	if err := r.Seal(info.EndCRC); err != nil {
		t.Fatal(err)
	}
	if err := st.Append(t.Context(), info.End, r); err != nil {
		t.Fatal(err)
	}
}

// §3 formats: the bytes of a meta part, which later versions must be able to read.
func TestGoldenMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		a, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
		do(t, a, func(c *persistent.Context[event], s *shelf) {
			if err := c.PersistAsync(put("a", "b"), note(7)); err != nil {
				t.Error(err)
			}
		})
		state := stop(t, a, s)
		st := acquire(t, j)
		var got string
		for rec, err := range st.ReadMeta(t.Context(), 1, math.MaxUint64) {
			if err != nil {
				t.Fatal(err)
			}
			got += hex.EncodeToString(rec.Meta)
		}
		const head = "01" + "80b0fdac8d37" // version; 946684800000 ms
		const want = head + "10" + "70020001" + "10" + "6e070000"
		if got != want {
			t.Errorf("meta is %s, want %s", got, want)
		}
		// And the frames that are rarer: 5 ms later, a bodyless put, a note that undoes it.
		meta, _ := hex.DecodeString(head + "16" + "11" + "70020001" + "10" + "75040200" + "13")
		appendRaw(t, st, journal.KindEvents, 3, meta)
		var events []string
		for rec, err := range st.ReadMeta(t.Context(), 1, math.MaxUint64) {
			if err != nil {
				t.Fatal(err)
			}
			for e, err := range persistent.ReadEvents(rec, codec{}) {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, fmt.Sprintf("%c %d+%d at %d %v %d", e.Event.kind, e.Seq, e.Count, e.At-946684800000, e.Bodyless, e.Undoes))
			}
		}
		if want := "p 1+2 at 0 false 0, n 3+1 at 0 false 0, p 4+2 at 5 true 0, u 6+1 at 5 false 4"; strings.Join(events, ", ") != want {
			t.Errorf("events %q, want %s", events, want)
		}
		_, s2 := open(t, j, persistent.Options{})
		if want := strings.Replace(state, "4 946684800000 7", "7 946684800005 7", 1); s2.state() != want {
			t.Errorf("state\n%s\nwant\n%s", s2.state(), want)
		}
	})
}

// §3, §4: what is of a later version, or does not decode, refuses to open with a typed error, and nothing is changed.
func TestRefusesToOpen(t *testing.T) {
	const head = "01" + "00"
	for _, c := range []struct {
		name, meta string
		kind       journal.Kind
		count      uint64
		want       error
	}{
		{"newer meta", "02" + "00", journal.KindEvents, 1, journal.ErrNewerFormat},
		{"no meta", "", journal.KindEvents, 1, journal.ErrCorrupt},
		{"version zero", "00" + "00", journal.KindEvents, 1, journal.ErrCorrupt},
		{"no time", "01", journal.KindEvents, 1, journal.ErrCorrupt},
		{"frame cut off", head + "80", journal.KindEvents, 1, journal.ErrCorrupt},
		{"event cut off", head + "10" + "6e07", journal.KindEvents, 1, journal.ErrCorrupt},
		{"undoes nothing", head + "13" + "10" + "6e070000", journal.KindEvents, 1, journal.ErrCorrupt},
		{"event of the codec", head + "04" + "6e", journal.KindEvents, 1, journal.ErrCorrupt},
		{"time overflows", head + "fe" + "ffffffffffffffff" + "01" + "fe" + "ffffffffffffffff" + "01", journal.KindEvents, 1, journal.ErrCorrupt},
		{"fewer seqs than counted", head + "10" + "6e070000", journal.KindEvents, 2, journal.ErrCorrupt},
		{"more seqs than counted", head + "10" + "70020001", journal.KindEvents, 1, journal.ErrCorrupt},
		{"later than the record", "01" + "feffffffffffffffff01" + "10" + "6e070000", journal.KindEvents, 1, journal.ErrCorrupt},
		{"skip behind events", "", journal.KindSkip, 5, journal.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := memory.New()
			a, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
			if err := persist(t.Context(), a, note(1)); err != nil {
				t.Fatal(err)
			}
			stop(t, a, s)
			meta, err := hex.DecodeString(c.meta)
			if err != nil {
				t.Fatal(err)
			}
			st := acquire(t, j)
			appendRaw(t, st, c.kind, c.count, meta)
			before, err := st.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = persistent.Open(t.Context(), j, "shelf", newShelf(), codec{}, quiet(persistent.Options{}))
			if !errors.Is(err, c.want) || errors.Is(err, journal.ErrCorrupt) != (c.want == journal.ErrCorrupt) {
				t.Errorf("open: %v, want %v", err, c.want)
			}
			if ce := (*journal.CorruptError)(nil); errors.As(err, &ce) && (ce.Seq != 2 && c.name != "fewer seqs than counted" || ce.Stream != "shelf") {
				t.Errorf("the error names seq %d of %q", ce.Seq, ce.Stream)
			}
			after, err := acquire(t, j).Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before.Epoch += 2
			if after != before {
				t.Errorf("the stream was changed: %+v, before %+v", after, before)
			}
		})
	}
}

// §4: seqs that epoch records take are passed by, in every life of the stream; a dropped stream begins empty, with higher seqs;
// a copied one may begin with a skip.
func TestSeqsOfOtherRecords(t *testing.T) {
	store, err := memory.NewStore(memory.Options{EpochRecords: true})
	if err != nil {
		t.Fatal(err)
	}
	j := store.Open()
	var state string
	for life := range 3 {
		for round := range 3 {
			a, s := open(t, j, persistent.Options{NoFinalSnapshot: round == 0})
			if round == 0 && (s.sum != 0 || len(s.things) != 0) {
				t.Fatalf("life %d begins with %s", life, s.state())
			}
			if round > 0 && s.sum != int64(round) {
				t.Fatalf("life %d round %d: recovered %s, before %s", life, round, s.state(), state)
			}
			if err := persist(t.Context(), a, note(1), put("x")); err != nil {
				t.Fatal(err)
			}
			state = stop(t, a, s)
		}
		if err := acquire(t, j).Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copied := memory.New()
	appendRaw(t, acquire(t, copied), journal.KindSkip, 500, nil)
	a, s := open(t, copied, persistent.Options{})
	if err := persist(t.Context(), a, note(1)); err != nil {
		t.Fatal(err)
	}
	if s.next != 502 {
		t.Errorf("behind a skip to 500 the first event made next %d", s.next)
	}
}

// §5: one log line a recovery says what was done; OnProgress is called on the way.
func TestRecoveryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		a, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
		for range 2500 {
			if err := persist(t.Context(), a, note(1), note(1)); err != nil {
				t.Fatal(err)
			}
		}
		stop(t, a, s)
		var out bytes.Buffer
		var progress []uint64
		b, s2 := open(t, j, persistent.Options{
			Logger:     slog.New(slog.NewTextHandler(&out, nil)),
			OnProgress: func(seq, end uint64) { progress = append(progress, seq, end) },
		})
		stop(t, b, s2)
		line := strings.TrimSuffix(out.String(), "\n")
		if strings.Contains(line, "\n") || !strings.Contains(line, "msg=recovered stream=shelf epoch=2 snapshot=0 end=5000 records=2500 events=5000") || !strings.Contains(line, "took=") {
			t.Errorf("logged %q", out.String())
		}
		if len(progress) != 4 || progress[0] != 2048 || progress[3] != 5000 {
			t.Errorf("progress %v", progress)
		}
	})
}

// tampered is a journal whose ReadMeta yields what change makes of the records; it ends where change returns false.
type tampered struct {
	journal.Journal
	change func(*journal.Record) bool
}

func (j tampered) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	st, err := j.Journal.Acquire(ctx, name)
	return tamperedStream{st, j.change}, err
}

type tamperedStream struct {
	journal.Stream
	change func(*journal.Record) bool
}

func (s tamperedStream) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for rec, err := range s.Stream.ReadMeta(ctx, from, to) {
			if err == nil && !s.change(rec) || !yield(rec, err) {
				return
			}
		}
	}
}

// §4, §5: a stream that reads shorter than it was acquired, with another end, with a hole, or with records of a kind
// that is not known, is not opened.
func TestRecoveryVerifiesTheStream(t *testing.T) {
	j := memory.New()
	a, s := open(t, j, persistent.Options{NoFinalSnapshot: true})
	for range 3 {
		if err := persist(t.Context(), a, note(1)); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, a, s)
	for _, c := range []struct {
		name   string
		change func(r *journal.Record) bool
		want   error
		seq    uint64
	}{
		{"shorter", func(r *journal.Record) bool { return r.First < 3 }, journal.ErrCorrupt, 3},
		{"empty", func(r *journal.Record) bool { return false }, journal.ErrCorrupt, 1},
		{"another end", func(r *journal.Record) bool { r.CRC++; return true }, journal.ErrCorrupt, 4},
		{"hole", func(r *journal.Record) bool {
			if r.First > 1 {
				r.First++
			}
			return true
		}, journal.ErrCorrupt, 2},
		{"newer kind", func(r *journal.Record) bool { r.Kind = 9; return true }, journal.ErrNewerFormat, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := persistent.Open(t.Context(), tampered{j, c.change}, "shelf", newShelf(), codec{}, quiet(persistent.Options{}))
			if !errors.Is(err, c.want) {
				t.Errorf("open: %v", err)
			}
			if ce := (*journal.CorruptError)(nil); errors.As(err, &ce) && ce.Seq != c.seq {
				t.Errorf("the error names seq %d, want %d", ce.Seq, c.seq)
			}
		})
	}
}
