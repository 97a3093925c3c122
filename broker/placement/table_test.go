package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Brokers of all versions must compute the same scores.
func TestScore(t *testing.T) {
	for _, c := range []struct {
		id, queue string
		want      uint64
	}{
		{"", "", 0x25fc6dd36ce04b20}, {"10.0.0.1:9650", "orders", 0x1cb4dfd1052e8ae1}, {"10.0.0.2:9650", "orders", 0x87ec4c6842feb4ab}, {"10.0.0.1:9650", "orders2", 0xf1d3d96df594bf5f},
	} {
		if got := Score(c.id, c.queue); got != c.want {
			t.Errorf("Score(%q, %q) is %#x, want %#x", c.id, c.queue, got, c.want)
		}
	}
	// Each of three brokers gets its share of queues.
	share := map[string]int{}
	for i := range 3000 {
		best := slices.MaxFunc([]string{"a:1", "b:1", "c:1"}, func(x, y string) int {
			if Score(x, fmt.Sprint("queue-", i)) < Score(y, fmt.Sprint("queue-", i)) {
				return -1
			}
			return 1
		})
		share[best]++
	}
	for id, n := range share {
		if n < 900 || n > 1100 {
			t.Errorf("%s has %d of 3000 queues", id, n)
		}
	}
}

// The bytes of an entry, which brokers of other versions read.
func TestEntry(t *testing.T) {
	e := Entry{Incarnation: "i", Beat: 7, Address: "a:1", Secret: "s", Pin: "p", New: true, AgeMs: 20, Term: 2, Cohort: []string{"b i 1"}, Leaving: true, Refused: []string{"q"}, RefusesAll: true}
	const want = `{"v":1,"incarnation":"i","beat":7,"address":"a:1","secret":"s","pin":"p","new":true,"age_ms":20,"term":2,"cohort":["b i 1"],"leaving":true,"refused":["q"],"refuses_all":true}`
	if got := string(e.Encode()); got != want {
		t.Errorf("encoded as\n%s\nwant\n%s", got, want)
	}
	got, err := Decode([]byte(strings.Replace(want, `{"v":1`, `{"later":[1],"v":2`, 1)))
	if err != nil || got.Beat != 7 || !slices.Equal(got.Refused, e.Refused) {
		t.Errorf("a later version's is read as %+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", "[]", `{"v":1}`, `{"incarnation":"i"}`, `{"v":1,"incarnation":7}`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// script drives one broker's table, whose id is "a", against entries that it is shown.
type script struct {
	*Table
	now     time.Duration
	entries map[string]Entry
}

func newScript(others ...string) *script {
	s := &script{Table: New(Options{ID: "a", Heartbeat: heartbeat, Expiry: expiry}, Entry{Incarnation: "a1", Address: "a:1"}), now: 5 * time.Hour, entries: map[string]Entry{}}
	for _, id := range others {
		s.entries[id] = Entry{Incarnation: id + "1", Address: id + ":1"}
	}
	return s
}

// pass lets time pass, in which all entries that are not silent are renewed.
func (s *script) pass(d time.Duration, silent ...string) (changes []string) {
	for until := s.now + d; s.now < until; {
		s.now += heartbeat
		e := s.Beat(s.now)
		s.Renewed(s.now, s.now, e)
		s.entries["a"] = e
		for id, e := range s.entries {
			if id != "a" && !slices.Contains(silent, id) {
				e.Beat++
				s.entries[id] = e
			}
		}
		for _, c := range s.Observe(s.now, s.now, s.entries) {
			changes = append(changes, c.ID+" "+c.What)
		}
	}
	return changes
}

// queueOf returns a queue whose highest score is that of an id.
func queueOf(id string, ids ...string) string {
	for i := 0; ; i++ {
		q := fmt.Sprint("q", i)
		if id == slices.MaxFunc(ids, func(x, y string) int {
			if Score(x, q) < Score(y, q) {
				return -1
			}
			return 1
		}) {
			return q
		}
	}
}

func (s *script) want(t *testing.T, when, queue, id string, sure, take bool) {
	t.Helper()
	if p := s.Place(queue); p.ID != id || p.Sure != sure || p.Self != (id == "a") {
		t.Errorf("%s: %s is placed at %+v, want %s, sure %v", when, queue, p, id, sure)
	}
	if got := s.MayTake(s.now, queue); got != take {
		t.Errorf("%s: %s may be taken: %v", when, queue, got)
	}
}

// §8: who lives, as one broker sees it.
func TestLiveness(t *testing.T) {
	s := newScript("b")
	q := queueOf("b", "a", "b")
	if s.Valid(s.now) || s.MayTake(s.now, q) {
		t.Error("valid before anything was stored or seen")
	}
	s.pass(heartbeat, "b")
	s.want(t, "b was seen once", q, "b", false, false)
	s.pass(expiry, "b")
	s.want(t, "b did not change", q, "a", true, true)
	if got := s.pass(heartbeat); !slices.Equal(got, []string{"b returned"}) {
		t.Errorf("changes %v", got)
	}
	s.want(t, "b changes", q, "b", true, false)
	s.pass(2*heartbeat, "b")
	s.want(t, "b is late", q, "b", true, false)
	if got := s.pass(heartbeat, "b"); !slices.Equal(got, []string{"b expired"}) {
		t.Errorf("changes %v", got)
	}
	s.want(t, "b has expired", q, "a", true, true)
	s.pass(2*heartbeat, "b")
	delete(s.entries, "b")
	if got := s.pass(heartbeat); !slices.Equal(got, []string{"b left"}) || !s.Alone() {
		t.Errorf("changes %v", got)
	}
}

// §8: who is no candidate, or ranks behind others.
func TestRanks(t *testing.T) {
	s := newScript("b", "c")
	s.pass(2 * expiry)
	q := queueOf("b", "a", "b", "c")
	s.want(t, "at first", q, "b", true, false)
	set := func(id string, f func(e *Entry)) { e := s.entries[id]; f(&e); s.entries[id] = e; s.pass(heartbeat) }
	set("b", func(e *Entry) { e.Refused = []string{q} })
	if p := s.Place(q); p.ID == "b" {
		t.Error("b refuses the queue and has it")
	}
	set("b", func(e *Entry) { e.Refused, e.RefusesAll = nil, true })
	if p := s.Place(q); p.ID == "b" {
		t.Error("b refuses all queues and has one")
	}
	set("b", func(e *Entry) { e.RefusesAll, e.Leaving = false, true })
	if p := s.Place(q); p.ID == "b" {
		t.Error("b leaves and has a queue")
	}
	set("b", func(e *Entry) { e.Leaving, e.New, e.AgeMs = false, true, 0 })
	if p := s.Place(q); p.ID == "b" {
		t.Error("b is new and has a queue of those that are not")
	}
	s.Leave()
	set("c", func(e *Entry) { e.Leaving = true })
	s.want(t, "only b does not leave", q, "b", true, false)
}

// Of brokers that begin together all are candidates at once, and one that joins later is none for one expiry.
func TestNewBrokers(t *testing.T) {
	s := newScript("b")
	qa, qb := queueOf("a", "a", "b"), queueOf("b", "a", "b")
	b := s.entries["b"]
	b.New, b.Term = true, 1
	s.entries["b"] = b
	s.pass(2 * heartbeat)
	s.want(t, "both are new", qa, "a", true, true)
	s.want(t, "both are new", qb, "b", true, false)
	if e := s.entries["a"]; e.New && !s.Overdue(s.now) || s.self.Cohort == nil {
		t.Errorf("not of age, and nobody is older: %+v", e)
	}
	s.pass(heartbeat)
	if e := s.entries["a"]; e.New || len(e.Cohort) != 1 {
		t.Errorf("published %+v", e)
	}
	s.want(t, "a is not new any more, b is of its cohort", qb, "b", true, false)

	late := newScript("b")
	late.pass(2 * heartbeat)
	late.want(t, "b is not new", qa, "b", true, false)
	late.pass(expiry)
	late.want(t, "after an expiry", qa, "a", true, true)
}

// A broker that stops being new does not take what another will have that is about to.
func TestJoinedTogether(t *testing.T) {
	s := newScript("b", "c")
	qc := queueOf("c", "a", "b", "c")
	c := s.entries["c"]
	c.New, c.AgeMs = true, 0
	s.entries["c"] = c
	s.pass(2 * expiry)
	if q := qc; s.Place(q).ID != "a" && s.Place(q).ID != "b" {
		t.Fatalf("%s is placed at %+v", q, s.Place(q))
	}
	q := ""
	for i := 0; q == ""; i++ {
		if n := fmt.Sprint("r", i); Score("c", n) > Score("a", n) && Score("a", n) > Score("b", n) {
			q = n
		}
	}
	s.want(t, "c is new", q, "a", true, true)
	c = s.entries["c"]
	c.AgeMs = (expiry - heartbeat).Milliseconds()
	s.entries["c"] = c
	s.pass(heartbeat)
	s.want(t, "c is not new for long any more", q, "a", true, false)
}

// A queue that could not be opened is tried again, is published only once that has happened twice while the store
// answered, and once it is, ever more seldom.
func TestRefusals(t *testing.T) {
	s := newScript("b")
	s.pass(2 * expiry)
	q := queueOf("a", "a", "b")
	if s.Failed(s.now, q, false) || s.MayTake(s.now, q) {
		t.Error("refused at once, or tried at once")
	}
	s.want(t, "after one failure", q, "a", true, false)
	s.pass(heartbeat)
	s.want(t, "a while later", q, "a", true, true)
	if !s.Failed(s.now, q, false) {
		t.Error("not refused after two failures")
	}
	s.want(t, "refused", q, "b", true, false)
	if e := s.Beat(s.now); !slices.Equal(e.Refused, []string{q}) {
		t.Errorf("published %+v", e)
	}
	s.pass(retryRefused)
	s.want(t, "to be tried again", q, "b", true, true)
	if s.Failed(s.now, q, true) {
		t.Error("published twice")
	}
	s.pass(retryRefused)
	s.want(t, "half of the next pause", q, "b", true, false)
	s.pass(retryRefused)
	if !s.Opened(s.now, q) {
		t.Error("not to be published that it is opened")
	}
	s.want(t, "opened", q, "a", true, true)
	if !s.Failed(s.now, q, true) {
		t.Error("a hard failure is not believed")
	}
	for i := range MaxRefused {
		s.Failed(s.now, fmt.Sprint("more", i), true)
	}
	if e := s.Beat(s.now); !e.RefusesAll || e.Refused != nil {
		t.Errorf("of too many it publishes %+v", e)
	}
}

// A queue that no broker can open, for a reason that may pass, is tried again soon, by the one that is to have it; where one serves it, or with damage, the others
// leave it alone for longer.
func TestRefusedByAll(t *testing.T) {
	for _, best := range []string{"a", "b"} {
		s := newScript("b")
		s.pass(2 * expiry)
		q := queueOf(best, "a", "b")
		refuse := func(hard bool) {
			s.Failed(s.now, q, hard)
			s.pass(heartbeat)
			s.Failed(s.now, q, hard)
		}
		refuse(false)
		s.pass(retryAlone)
		s.want(t, "another one can", q, "b", true, false)
		e := s.entries["b"]
		e.Refused = []string{q}
		s.entries["b"] = e
		s.pass(heartbeat)
		s.want(t, "nobody can", q, best, true, best == "a")
		for range 10 { // however often it has failed
			s.Failed(s.now, q, false)
			s.want(t, "tried in vain", q, best, true, false)
			at, ok := s.Waits(s.now, q)
			if soon := at-s.now == retryAlone; !ok || soon != (best == "a") {
				t.Errorf("it waits for %v", at-s.now)
			}
		}
		s.pass(retryAlone)
		s.want(t, "tried again", q, best, true, best == "a")
		s.Failed(s.now, q, true)
		s.pass(retryAlone)
		s.want(t, "damaged", q, best, true, false)
	}
}

// G5: a broker that is fenced where that was not to be expected waits, longer each time; where it was, it does not.
func TestContests(t *testing.T) {
	s := newScript("b")
	s.pass(2 * expiry)
	q := queueOf("a", "a", "b")
	for want := expiry; want < 4*expiry; want *= 2 {
		s.Opened(s.now, q)
		if got := s.Fenced(s.now, q); got != want {
			t.Errorf("waits %v, want %v", got, want)
		}
		s.pass(want - heartbeat)
		s.want(t, "not yet", q, "a", true, false)
		s.pass(heartbeat)
		s.want(t, "now", q, "a", true, true)
	}
	s.Opened(s.now, q)
	s.pass(stable + heartbeat)
	if got := s.Fenced(s.now, q); got != expiry {
		t.Errorf("after a long time in peace it waits %v", got)
	}
	if got := s.Fenced(s.now, queueOf("b", "a", "b")); got != 0 {
		t.Errorf("it waits %v for a queue that is another's", got)
	}
}

// Of two brokers with one address neither serves, until the other one is gone.
func TestDouble(t *testing.T) {
	s := newScript()
	s.pass(expiry)
	if !s.Valid(s.now) {
		t.Fatal("not valid")
	}
	e := s.entries["a"]
	e.Incarnation = "z"
	s.Observe(s.now+1, s.now+1, map[string]Entry{"a": e})
	if s.Valid(s.now + 1) {
		t.Error("valid beside another one of its address")
	}
	s.pass(expiry + heartbeat)
	if !s.Valid(s.now) {
		t.Error("not valid after the other one is gone")
	}
}
