package journaltest

import (
	"errors"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// startRules are about journal.Starter. They set no hook: StartAppend has no context by which the suite would know its calls.
var startRules = []Rule{
	{Name: "stores", Promise: "StartAppend does what Append does: done is called once, with nil when the record is stored, whole and as it was given.", needs: needs{starts: true}, check: startStores},
	{Name: "repeat", Promise: "StartAppend counts as a call of Append: of a record that stands there done gets nil, by whichever of the two it was stored.", needs: needs{starts: true}, check: startRepeat},
	{Name: "refused", Promise: "What Append would refuse, done is told, once. Nothing is stored.", needs: needs{starts: true}, check: startRefused},
	{Name: "fenced", Promise: "Under a newer epoch done gets ErrFenced, and nothing is stored; of what was stored before the fence it gets nil.", needs: needs{starts: true}, check: startFenced},
	{Name: "closed", Promise: "After Release and after Close done gets ErrClosed.", needs: needs{starts: true}, check: startClosed},
	{Name: "under-way", Promise: "Appends under way when the journal is closed end: done is called, once, with ErrClosed or nil; what got nil is stored.", needs: needs{starts: true, persistent: true}, check: startUnderWay},
	{Name: "power-cut", Promise: "done gets nil once the record is on stable storage: a power cut loses nothing of which it did.", needs: needs{starts: true, crashes: true}, check: startPowerCut},
}

// starter is an owner that appends by StartAppend.
type starter struct {
	*owner
	all []chan error // the answers of each append that was started: there is to be one
}

func (e *env) starter(o *owner) *starter {
	e.Helper()
	if _, ok := o.s.(journal.Starter); !ok {
		e.Fatalf("Config.Starts is set, and %T is no journal.Starter", o.s)
	}
	return &starter{owner: o}
}

// start starts the append of a copy of r behind after, waits for its answer, and then destroys the copy, which is the suite's again: a driver that keeps
// it is found by what is read later. It does so again while the outcome is unknown.
func (s *starter) start(after uint64, r *journal.Record) error {
	s.Helper()
	return s.settle(func() error {
		c, answers := clone(r), make(chan error, 2)
		s.all = append(s.all, answers)
		s.s.(journal.Starter).StartAppend(after, c, func(err error) {
			select {
			case answers <- err:
			default: // the second one is enough
			}
		})
		select {
		case err := <-answers:
			if settled(err) {
				scribble(c)
			}
			return err
		case <-s.ctx.Done():
			s.Fatalf("done was not called for the append behind seq %d that was started", after)
			return nil
		}
	})
}

// put starts the append of r, which must succeed.
func (s *starter) put(r *journal.Record) {
	s.Helper()
	if err := s.start(r.First-1, r); err != nil {
		s.Fatalf("start to append the record of seqs %d…%d: %v", r.First, r.Last(), err)
	}
	s.end, s.crc, s.time = r.Last(), r.CRC, r.Time
}

// once closes the journal, and requires that no answer has come twice.
func (s *starter) once() {
	s.Helper()
	if err := s.j.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	for i, answers := range s.all {
		if len(answers) > 0 {
			s.Fatalf("done was called twice for append %d that was started, then with %v", i+1, <-answers)
		}
	}
}

func startStores(e *env) {
	s := e.starter(e.acquire(e.j, "orders"))
	var recs, withBody []*journal.Record
	for i := range 20 {
		r := s.random()
		switch i % 5 {
		case 3: // the two ways by turns
			s.owner.put(r)
		case 4:
			r = s.record(2, e.blob(10), nil)
			s.put(r)
		default:
			s.put(r)
		}
		recs = append(recs, r)
		if r.BodyLen > 0 {
			withBody = append(withBody, r)
		}
		s.wantEnd(s.s)
	}
	s.wantMetas(s.s, 0, all, recs)
	s.wantBodies(s.s, withBody, withBody)
	s.once()
}

func startRepeat(e *env) {
	s := e.starter(e.acquire(e.j, "orders"))
	recs := s.append(2)
	for range 2 {
		r := s.random()
		s.put(r)
		recs = append(recs, r)
	}
	before := e.photo(s.s)
	for _, r := range recs {
		if err := s.start(r.First-1, r); err != nil {
			e.Fatalf("start the append of a stored record again: %v", err)
		}
		c := clone(r)
		e.must("append again what was stored", func() error { return s.s.Append(e.ctx, c.First-1, c) })
	}
	e.unchanged("repeating stored appends", s.s, before)
	s.once()
}

func startRefused(e *env) {
	s := e.starter(e.acquire(e.j, "orders"))
	r := s.random()
	s.put(r)
	recs := []*journal.Record{r}
	before := e.photo(s.s)
	other := s.random()
	other.First += 5
	s.seal(other)
	late := s.random()
	late.Epoch++
	s.seal(late)
	unsealed := s.random()
	unsealed.CRC++
	for what, try := range map[string]struct {
		r    *journal.Record
		want error
	}{
		"at another place than the end": {other, journal.ErrConflict},
		"of a later epoch":              {late, journal.ErrInvalid},
		"that is not sealed":            {unsealed, journal.ErrInvalid},
	} {
		e.refused("start to append a record "+what, func() error { return s.start(try.r.First-1, try.r) }, try.want)
		e.unchanged("an append that was started, of a record "+what+",", s.s, before)
	}
	r = s.random()
	s.put(r)
	s.wantStream(s.s, append(recs, r))
	s.once()
}

func startFenced(e *env) {
	old := e.starter(e.acquire(e.j, "orders"))
	var recs []*journal.Record
	for range 3 {
		r := old.random()
		old.put(r)
		recs = append(recs, r)
	}
	next := old.random()
	o := e.acquire(e.second(), "orders")
	before := e.photo(o.s)
	e.refused("start an append under an old epoch", func() error { return old.start(next.First-1, next) }, journal.ErrFenced)
	e.unchanged("what a fenced owner started,", o.s, before)
	if err := old.start(recs[2].First-1, recs[2]); err != nil {
		e.Fatalf("start again, under an old epoch, what was stored before the fence: %v", err)
	}
	recs = append(recs, o.append(2)...)
	e.refused("start an append under an old epoch", func() error { return old.start(next.First-1, next) }, journal.ErrFenced)
	o.wantStream(o.s, recs)
	old.once()
}

func startClosed(e *env) {
	s := e.starter(e.acquire(e.j, "orders"))
	s.put(s.random())
	if err := s.s.Release(); err != nil {
		e.Fatalf("release: %v", err)
	}
	next := s.random()
	e.refused("start an append after Release", func() error { return s.start(next.First-1, next) }, journal.ErrClosed)
	again := e.starter(e.acquire(e.j, "orders"))
	next = again.random()
	again.once()
	e.refused("start an append after Close", func() error { return again.start(next.First-1, next) }, journal.ErrClosed)
	again.once()
	s.once()
}

func startUnderWay(e *env) {
	const writers = 4
	names := []string{"a", "b", "c", "d"}
	var owners []*starter
	acked := make([][]*journal.Record, writers)
	for i := range writers {
		s := e.starter(e.acquire(e.j, names[i]))
		s.env = e.worker(uint64(i))
		owners = append(owners, s)
	}
	var wg sync.WaitGroup
	busy := make(chan struct{}, writers)
	for i, s := range owners {
		wg.Go(func() {
			for n := 0; ; n++ {
				r := s.random()
				err := s.start(r.First-1, r)
				if err != nil {
					if !errors.Is(err, journal.ErrClosed) {
						e.Errorf("an append that was started while the journal is closed: %v, want nil or ErrClosed", err)
					}
					return
				}
				s.owner.end, s.crc, s.time = r.Last(), r.CRC, r.Time
				acked[i] = append(acked[i], r)
				if n == 3 {
					busy <- struct{}{}
				}
			}
		})
	}
	for range writers {
		select {
		case <-busy:
		case <-e.ctx.Done():
			e.Fatalf("out of time: appends that were started are not answered")
		}
	}
	e.within("Close with started appends under way", e.cfg.Timeout/2, func() {
		if err := e.j.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	})
	e.within("the answers of appends that were under way when the journal was closed", e.cfg.Timeout/2, wg.Wait)
	for _, s := range owners {
		s.once()
	}
	e.j = e.open()
	for i, name := range names {
		r := e.reader(e.j, name)
		got := e.mustMetas(r, 1, all)
		// One append may have been stored, and told as closed.
		if len(got) < len(acked[i]) || len(got) > len(acked[i])+1 {
			e.Fatalf("%d records after reopening, %d were acknowledged before", len(got), len(acked[i]))
		}
		e.wantMetas(r, 1, acked[i][len(acked[i])-1].Last(), acked[i])
	}
}

func startPowerCut(e *env) {
	var recs []*journal.Record
	for i := range 12 {
		s := e.starter(e.acquire(e.j, "orders"))
		for range 1 + i%3 {
			r := s.random()
			s.put(r)
			recs = append(recs, r)
		}
		e.cut()
		r := e.reader(e.j, "orders")
		e.wantMetas(r, 1, all, recs)
		e.wantBodies(r, recs, recs)
	}
}
