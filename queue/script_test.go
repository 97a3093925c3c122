package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/holdfastmq/holdfast/message"
)

// TestScripts runs the scenarios in testdata: commands to a queue, with the events and effects that they lead to. Each says what it
// shows. Rewrite the traces by -args -rewrite, and read the diff.
//
//	queue [OPTION=N]…                       a new queue, at time 0
//	configure [key=value]…                  as in Config; what is not named is the default
//	sender ID [producer=P] [no-wait]        close-sender ID [forget]
//	send ID seq=N [n=N] [size=BYTES] [floor=N] [key=K] [prio=P] [delay=D] [ttl=D] [dedup=ID[,ID…]] [origin]
//	receiver ID [announces] [unbound] [visibility=D] [credit=N] [bytes=N]
//	credit ID messages=N [bytes=N]          totals
//	close ID [clean]                        resume OLD NEW [announces] [held=SPANS]
//	started ID SPANS                        ack|nack|release|extend SPANS [delay=D] [by=D]
//	pause | unpause | purge | redrive [target=Q] [limit=N] | move-done SEQ [fails]
//	at TIME                                 ticks as often as the deadline says, up to then
//	hold | store                            from hold on nothing is stored until store
//	refuse                                  the store has no room for the bodies of what is held
//	storage-full | storage-room
//	crash [lose] [down=D]                   what is held is stored, or lost
//	peek [STATE] | stats NAME…
//
// SPANS are LEASE:SEQ or LEASE:SEQ+COUNT, separated by commas. Times are in ms since the queue was made.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			s.out.Reset()
			s.run()
			return s.out.String()
		})
	})
}

const scriptStart = 1_000_000_000_000

type script struct {
	t   *testing.T
	d   *datadriven.TestData
	sh  *shell
	out strings.Builder

	held bool
}

func (s *script) run() {
	if s.d.Cmd == "queue" {
		o := Options{Moves: s.num("moves", 0), MaxDedupIDs: s.num("dedup-ids", 0), MaxProducers: s.num("producers", 0)}
		s.sh = newShell(s.t, o, scriptStart)
		s.sh.onEvent, s.sh.onEffect = s.event, s.effect
		s.held = false
		return
	}
	s.sh.t = s.t
	c, now := s.sh.core, s.sh.now
	var err error
	switch s.d.Cmd {
	case "configure":
		c.Configure(now, 1, s.config())
	case "sender":
		o := SenderOptions{NoWait: s.has("no-wait")}
		if p := s.str("producer"); p != "" {
			o.Producer = Producer{p, "1"}
		}
		var resume uint64
		if resume, err = c.OpenSender(now, SenderID(s.arg(0)), o); resume > 0 {
			fmt.Fprintf(&s.out, "resume at %d\n", resume)
		}
	case "close-sender":
		c.CloseSender(now, SenderID(s.arg(0)), s.has("forget"))
	case "send":
		err = s.send()
	case "receiver":
		id := ReceiverID(s.arg(0))
		if err = c.OpenReceiver(now, id, s.receiverOptions()); err == nil && s.has("credit") {
			err = c.Credit(now, id, uint64(s.num("credit", 0)), uint64(s.num("bytes", 1<<40)))
		}
	case "credit":
		err = c.Credit(now, ReceiverID(s.arg(0)), uint64(s.num("messages", 0)), uint64(s.num("bytes", 1<<40)))
	case "close":
		c.CloseReceiver(now, ReceiverID(s.arg(0)), s.has("clean"))
	case "resume":
		var kept []LeaseSpan
		kept, err = c.ResumeReceiver(now, ReceiverID(s.arg(0)), ReceiverID(s.arg(1)), s.receiverOptions(), s.spans(s.str("held")))
		fmt.Fprintf(&s.out, "kept %d runs: %s\n", len(kept), cmp.Or(leaseSpans(kept), "none"))
	case "started":
		c.Started(now, 1, ReceiverID(s.arg(0)), s.spans(s.d.CmdArgs[1].Key))
	case "ack":
		c.Ack(now, 1, s.spans(s.d.CmdArgs[0].Key))
	case "nack":
		delay := int64(-1)
		if s.has("delay") {
			delay = s.dur("delay").Milliseconds()
		}
		c.Nack(now, 1, s.spans(s.d.CmdArgs[0].Key), delay)
	case "release":
		c.Release(now, 1, s.spans(s.d.CmdArgs[0].Key))
	case "extend":
		c.Extend(now, 1, s.spans(s.d.CmdArgs[0].Key), s.dur("by").Milliseconds())
	case "pause":
		c.Pause(now, 1, true)
	case "unpause":
		c.Pause(now, 1, false)
	case "purge":
		c.Purge(now, 1)
	case "redrive":
		c.Redrive(now, 1, s.str("target"), s.num("limit", 0))
	case "move-done":
		var failed error
		if s.has("fails") {
			failed = errors.New("target full")
		}
		c.MoveDone(now, uint64(s.arg(0)), failed)
	case "at":
		s.at(scriptStart + int64(s.arg(0)))
	default:
		s.runStorage()
	}
	if err != nil {
		fmt.Fprintf(&s.out, "error: %v\n", err)
	}
	s.sh.step(!s.held)
}

// runStorage is the commands about what is under the queue, and what only looks.
func (s *script) runStorage() {
	c, now := s.sh.core, s.sh.now
	switch s.d.Cmd {
	case "hold":
		s.held = true
	case "store":
		s.held = false
	case "refuse":
		s.sh.refuse()
	case "storage-full":
		c.StorageFull(now, true)
	case "storage-room":
		c.StorageFull(now, false)
	case "crash":
		s.held = false
		s.sh.crash(!s.has("lose"), nil, 0, s.dur("down").Milliseconds())
	case "snapshot-and-crash":
		snap, seq := s.sh.snapshot()
		s.sh.crash(true, snap, seq, s.dur("down").Milliseconds())
	case "peek":
		state := StateAny
		if len(s.d.CmdArgs) > 0 {
			var err error
			if state, err = ParseState(s.d.CmdArgs[0].Key); err != nil {
				fmt.Fprintf(&s.out, "error: %v\n", err)
				return
			}
		}
		for _, m := range c.Peek(state, 0, 100) {
			fmt.Fprintf(&s.out, "%d %v size=%d prio=%d deliveries=%d due=%s target=%q\n", m.Seq, m.State, m.Size, m.Priority, m.Deliveries, ms(m.Due), m.Target)
		}
	case "stats":
		s.stats(c.Stats(now))
	default:
		s.t.Fatalf("unknown command %q", s.d.Cmd)
	}
}

func (s *script) stats(st Stats) {
	all := map[string]any{
		"depth": st.Depth, "ready": st.Ready, "blocked": st.Blocked, "delayed": st.Delayed, "retrying": st.Retrying, "in-flight": st.InFlight,
		"parked": st.Parked, "moving": st.Moving, "bytes": st.Bytes, "age": st.OldestAge, "sent": st.Sent, "duplicates": st.Duplicates,
		"delivered": st.Delivered, "redelivered": st.Redelivered, "acked": st.Acked, "nacked": st.Nacked, "released": st.Released,
		"lease-expired": st.LeaseExpired, "disconnected": st.Disconnected, "expired": st.Expired, "purged": st.Purged, "dropped": st.Dropped,
		"parked-ever": st.ParkedEver, "dead-lettered": st.DeadLettered, "redriven": st.Redriven, "refused": st.Refused,
		"waiting-senders": st.WaitingSenders, "credit": st.CreditOutstanding, "receivers": st.Receivers, "held-receivers": st.HeldReceivers,
		"dedup-ids": st.DedupIDs, "dedup-evicted": st.DedupIDsEvicted, "producers": st.Producers, "producers-evicted": st.ProducersEvicted,
		"stored-bytes": st.StoredBytes, "holding-expiry": st.HoldingExpiry,
	}
	for _, a := range s.d.CmdArgs {
		v, ok := all[a.Key]
		if !ok {
			s.t.Fatalf("unknown number %q", a.Key)
		}
		fmt.Fprintf(&s.out, "%s %v\n", a.Key, v)
	}
}

// at lets time pass, stopping wherever something is due.
func (s *script) at(to int64) {
	for range 1000 {
		at, ok := s.sh.core.Deadline()
		if !ok || at > to {
			break
		}
		s.sh.now = max(s.sh.now, at)
		s.sh.core.Tick(s.sh.now)
		if s.sh.take(); !s.held {
			s.sh.store()
		}
	}
	s.sh.now = max(s.sh.now, to)
	s.sh.core.Tick(s.sh.now)
}

func (s *script) has(key string) bool {
	return slices.ContainsFunc(s.d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
}

func (s *script) str(key string) string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func (s *script) num(key string, otherwise int) int {
	if !s.has(key) {
		return otherwise
	}
	n, err := strconv.Atoi(s.str(key))
	if err != nil {
		s.t.Fatalf("%s: %v", key, err)
	}
	return n
}

func (s *script) arg(i int) int {
	n, err := strconv.Atoi(s.d.CmdArgs[i].Key)
	if err != nil {
		s.t.Fatalf("argument %d: %v", i, err)
	}
	return n
}

func (s *script) dur(key string) time.Duration {
	if !s.has(key) {
		return 0
	}
	d, err := time.ParseDuration(s.str(key))
	if err != nil {
		s.t.Fatalf("%s: %v", key, err)
	}
	return d
}

func (s *script) config() Config {
	c := Config{
		VisibilityTimeout: s.dur("visibility"), MaxDeliveries: s.num("max-deliveries", 0), DeadLetter: s.str("dead-letter"),
		RetryFirst: s.dur("retry-first"), RetryCap: s.dur("retry-cap"), Retention: s.dur("retention"),
		MaxMessages: int64(s.num("max-messages", 0)), MaxBytes: int64(s.num("max-bytes", 0)), Overflow: Overflow(s.str("overflow")),
		DefaultDelay: s.dur("delay"), DedupWindow: s.dur("dedup-window"),
	}
	if s.has("retry-at-once") {
		c.RetryFirst = Unlimited
	}
	return c
}

func (s *script) receiverOptions() ReceiverOptions {
	return ReceiverOptions{Announces: s.has("announces"), Unbound: s.has("unbound"), Visibility: s.dur("visibility").Milliseconds(),
		Session: uint64(s.num("session", 0))}
}

func (s *script) send() error {
	n := s.num("n", 1)
	dedup := strings.Split(s.str("dedup"), ",")
	var b message.Builder
	for i := range n {
		m := message.Message{Body: make([]byte, s.num("size", 1)), Priority: s.num("prio", 0), Key: s.str("key"), Delay: s.dur("delay"), TTL: s.dur("ttl")}
		if i < len(dedup) {
			m.DedupID = dedup[i]
		}
		b.Add(&m)
	}
	if s.has("origin") {
		a, err := message.Moved(message.Raw{Body: []byte{0}}, message.Origin{Seq: 7}, message.Hop{Queue: "elsewhere", Reason: "max-deliveries"})
		if err != nil {
			return err
		}
		b.Reset(nil)
		b.AddRaw(message.Raw{Attrs: a, Body: []byte{0}})
	}
	frame := b.Finish()
	info, err := message.Check(frame, message.Limits{Internal: true})
	if err != nil {
		return err
	}
	return s.sh.core.Send(s.sh.now, SendBatch{Sender: SenderID(s.arg(0)), ProducerSeq: uint64(s.num("seq", 0)), Floor: uint64(s.num("floor", 0)), Frame: frame, Info: info})
}

func (s *script) spans(in string) []LeaseSpan {
	var out []LeaseSpan
	for _, f := range strings.Split(in, ",") {
		if f == "" {
			continue
		}
		l := LeaseSpan{Count: 1}
		if !strings.Contains(f, "+") {
			f += "+1"
		}
		if _, err := fmt.Sscanf(f, "%d:%d+%d", &l.Lease, &l.Seq, &l.Count); err != nil {
			s.t.Fatalf("span %q: %v", f, err)
		}
		out = append(out, l)
	}
	return out
}

// ms writes a time as ms since the queue was made.
func ms(t int64) string {
	if t == 0 {
		return "-"
	}
	return strconv.FormatInt(t-scriptStart, 10)
}

func spans(in []Span) string {
	var out []string
	for _, s := range in {
		if s.Count == 1 {
			out = append(out, fmt.Sprint(s.Seq))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", s.Seq, s.Seq+s.Count-1))
		}
	}
	return strings.Join(out, ",")
}

func leaseSpans(in []LeaseSpan) string {
	var out []string
	for _, s := range in {
		f := fmt.Sprintf("%d:%d", s.Lease, s.Seq)
		if s.Count > 1 {
			f += fmt.Sprintf("+%d", s.Count)
		}
		out = append(out, f)
	}
	return strings.Join(out, ",")
}

var kindNames = map[Kind]string{
	KindAdded: "added", KindLeased: "leased", KindStarted: "started", KindReturned: "returned", KindDeleted: "deleted", KindExpired: "expired",
	KindPurged: "purged", KindDropped: "dropped", KindParked: "parked", KindMoving: "moving", KindMoved: "moved", KindUnparked: "unparked",
	KindConfigured: "configured", KindPaused: "paused", KindRelocated: "relocated", KindProducerClosed: "producer-closed",
	KindSuppressed: "suppressed", KindUndone: "undone",
}

// event writes an event, with its seq if it is not that of its messages.
func (s *script) event(seq uint64, e *Event) {
	var f []string
	add := func(is bool, format string, args ...any) {
		if is {
			f = append(f, fmt.Sprintf(format, args...))
		}
	}
	add(e.Lease > 0, "lease=%d", e.Lease)
	add(e.Cause > 0, "cause=%s", [...]string{"", "nack", "release", "lease-expired", "disconnected"}[e.Cause])
	add(e.Counted, "counted")
	add(e.Lost && !e.Counted, "unstarted")
	add(e.Lost && e.Counted, "lost")
	add(e.Alone, "alone")
	add(e.Due > 0, "due=%s", ms(e.Due))
	add(e.Target != "", "target=%s", e.Target)
	add(e.Reason != "", "reason=%s", e.Reason)
	add(e.Kind == KindPaused, "%v", e.Paused)
	add(!e.Producer.IsZero(), "producer=%s up-to=%d", e.Producer.ID, e.ProducerSeq)
	line := fmt.Sprintf("[%s] %d %s %s %s", strings.Replace(ms(e.At), "-", "0", 1), seq, kindNames[e.Kind], spans(e.Spans), strings.Join(f, " "))
	fmt.Fprintln(&s.out, strings.TrimRight(strings.ReplaceAll(line, "  ", " "), " "))
}

func (s *script) effect(e Effect, err error) {
	if err != nil {
		fmt.Fprintf(&s.out, "  failed (%v): ", err)
	}
	switch e := e.(type) {
	case Accepted:
		fmt.Fprintf(&s.out, "  -> sender %d: accepted up to %d, %d from seq %d, %d duplicates", e.Sender, e.UpTo, e.Count, e.First, e.Duplicates)
		for _, d := range e.Suppressed {
			fmt.Fprintf(&s.out, ", %d is seq %d", d.ProducerSeq, d.Seq)
		}
		fmt.Fprintln(&s.out)
	case Refused:
		fmt.Fprintf(&s.out, "  -> sender %d: refused, resume at %d: %v\n", e.Sender, e.Resume, e.Err)
	case SenderWaits:
		fmt.Fprintln(&s.out, strings.TrimRight(fmt.Sprintf("  -> sender %d: waits %v %s", e.Sender, e.Waits, e.Reason), " "))
	case Deliver:
		for _, d := range e.Runs {
			fmt.Fprintf(&s.out, "  -> receiver %d: %s attempt %d", e.Receiver, leaseSpans([]LeaseSpan{d.LeaseSpan}), d.Attempt)
			if d.ConfirmStart {
				fmt.Fprint(&s.out, ", confirm the start")
			}
			fmt.Fprintln(&s.out)
		}
	case LeaseLost:
		fmt.Fprintf(&s.out, "  -> receiver %d: lost %s, %s\n", e.Receiver, leaseSpans(e.Spans), e.Reason)
	case Reply:
		s.reply(e)
	case Dead:
		fmt.Fprintf(&s.out, "  -> dead records %s\n", spans(e.Ranges))
	case Move:
		fmt.Fprintf(&s.out, "  -> move %d to %q, %s, %d deliveries\n", e.Seq, e.Target, e.Reason, e.Deliveries)
	case Warning:
		fmt.Fprintf(&s.out, "  -> warning: %s\n", e.Text)
	}
}

func (s *script) reply(e Reply) {
	switch {
	case e.Err != nil:
		fmt.Fprintf(&s.out, "  -> error: %s\n", strings.ReplaceAll(e.Err.Error(), "\n", "; "))
	case e.N > 0:
		fmt.Fprintf(&s.out, "  -> done, %d messages\n", e.N)
	case e.Outcomes == nil:
		fmt.Fprintln(&s.out, "  -> done")
	}
	for _, o := range e.Outcomes {
		fmt.Fprintf(&s.out, "  -> %s %s\n", leaseSpans([]LeaseSpan{o.LeaseSpan}), [...]string{"done", "gone", "lost"}[o.Result])
	}
}
