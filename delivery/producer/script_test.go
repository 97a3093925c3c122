package producer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The scripts in testdata/scripts are the sentences of design §6 about the producer, as traces; times are milliseconds. Run
// with -rewrite to accept what the core does now.
//
//	producer [window=N] [first=N] [hold]   a new one, with the default times and no jitter to speak of
//	restore next=N A[-B]...                one that resumes with A…B unconfirmed
//	send N                                 number N messages and transmit what may be
//	release N                              what is up to N is stored: transmit what may be
//	ack A[-B]...                           acknowledgements, in their order
//	now T                                  go on to time T, repeating what falls due on the way
//	state
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{core: New(millis(Options{}))}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.command(t, d)
			if s.out.Len() == 0 {
				return "nothing\n"
			}
			return s.out.String()
		})
	})
}

type script struct {
	core *Core
	now  int64
	out  strings.Builder
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) }

func (s *script) command(t *testing.T, d *datadriven.TestData) {
	number := func(i int) uint64 { return parseNumber(t, d, d.CmdArgs[i].Key) }
	switch d.Cmd {
	case "producer":
		var o Options
		if d.HasArg("window") {
			d.ScanArgs(t, "window", &o.Window)
		}
		if d.HasArg("first") {
			d.ScanArgs(t, "first", &o.First)
		}
		o.Hold = d.HasArg("hold")
		*s = script{core: New(millis(o))}
		s.state()
	case "restore":
		var next uint64
		d.ScanArgs(t, "next", &next)
		var unsettled []Range
		for _, a := range d.CmdArgs[1:] {
			unsettled = append(unsettled, parseRange(t, d, a.Key))
		}
		*s = script{core: Restore(millis(Options{}), next, unsettled)}
		s.transmit()
	case "send":
		n := int(number(0))
		if room := s.core.Room(); n > room {
			s.printf("room for %d only: the others wait\n", room)
			n = room
		}
		s.core.Number(n)
		s.transmit()
	case "release":
		s.core.Release(number(0))
		s.transmit()
	case "ack":
		for _, a := range d.CmdArgs {
			r := parseRange(t, d, a.Key)
			s.printf("%s: settled", a.Key)
			for _, r := range s.core.Ack(nil, r.First, r.Last) {
				s.printf(" %s", show(r))
			}
			s.printf(", floor %d\n", s.core.Floor())
		}
	case "now":
		s.advance(int64(number(0)))
	case "state":
		s.state()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

func (s *script) state() {
	s.printf("next %d, floor %d, %d unsettled, room %d\n", s.core.Next(), s.core.Floor(), s.core.Unsettled(), s.core.Room())
}

func (s *script) transmit() {
	for r, ok := s.core.Transmit(1<<20, s.now); ok; r, ok = s.core.Transmit(1<<20, s.now) {
		s.printf("transmit %s floor %d\n", show(r), s.core.Floor())
	}
}

// advance goes to time t, from one due time to the next.
func (s *script) advance(t int64) {
	for at, ok := s.core.NextDue(); ok && at <= t; at, ok = s.core.NextDue() {
		s.now = at
		for _, r := range s.core.Due(nil, at) {
			s.printf("%d: transmit %s floor %d, attempt %d\n", at, show(r.Range), s.core.Floor(), r.Attempt)
		}
	}
	s.now = t
}

func show(r Range) string {
	if r.First == r.Last {
		return strconv.FormatUint(r.First, 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func parseNumber(t *testing.T, d *datadriven.TestData, arg string) uint64 {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func parseRange(t *testing.T, d *datadriven.TestData, arg string) Range {
	a, b, ok := strings.Cut(arg, "-")
	r := Range{First: parseNumber(t, d, a)}
	r.Last = r.First
	if ok {
		r.Last = parseNumber(t, d, b)
	}
	return r
}
