package journalcmd

import (
	"encoding/json"
	"fmt"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/queue"
)

var causes = map[queue.Cause]string{
	queue.CauseNack: "nack", queue.CauseRelease: "release", queue.CauseLeaseExpired: "lease-expired", queue.CauseDisconnected: "disconnected",
}

// eventObject is an event of a queue as JSON, without what its kind does not name.
func eventObject(seq, count uint64, bodyless bool, undoes uint64, e *queue.Event) cli.Object {
	kind := eventKinds[e.Kind]
	if kind == "" {
		kind = fmt.Sprintf("kind %d", e.Kind)
	}
	o := cli.Object{{Name: "seq", Value: seq}, {Name: "event", Value: kind}, {Name: "at", Value: cli.Stamp(e.At)}}
	add := func(name string, v any, set bool) {
		if set {
			o = append(o, cli.Pair{Name: name, Value: v})
		}
	}
	if e.Added != nil {
		a := e.Added
		add("messages", count, true)
		add("producer", a.Producer.ID, !a.Producer.IsZero())
		add("incarnation", a.Producer.Incarnation, !a.Producer.IsZero())
		add("producer_seq", a.ProducerSeq, !a.Producer.IsZero())
		add("producer_last", a.ProducerLast, !a.Producer.IsZero())
		add("not_before", cli.Stamp(a.NotBefore), a.NotBefore != 0)
		add("size", a.Uniform, a.Sizes == nil)
		add("sizes", a.Sizes, a.Sizes != nil)
		add("specials", a.Specials, len(a.Specials) > 0)
	}
	var spans [][2]uint64
	for _, s := range e.Spans {
		spans = append(spans, [2]uint64{s.Seq, s.Seq + s.Count - 1})
	}
	add("spans", spans, len(spans) > 0 && e.Added == nil)
	add("lease", e.Lease, e.Lease != 0)
	add("announces", true, e.Announces)
	add("visibility_ms", e.Visibility, e.Visibility != 0)
	add("cause", causes[e.Cause], e.Cause != 0)
	add("counted", true, e.Counted)
	add("unstarted", true, e.Lost && !e.Counted)
	add("lost", true, e.Lost && e.Counted)
	add("alone", true, e.Alone)
	add("due", cli.Stamp(e.Due), e.Due != 0)
	add("target", e.Target, e.Target != "")
	add("reason", e.Reason, e.Reason != "")
	if e.Config != nil {
		b, err := json.Marshal(e.Config)
		if err == nil {
			add("config", json.RawMessage(b), true)
		}
	}
	add("paused", e.Paused, e.Kind == queue.KindPaused)
	if e.Added == nil {
		add("producer", e.Producer.ID, !e.Producer.IsZero())
		add("incarnation", e.Producer.Incarnation, !e.Producer.IsZero())
		add("producer_seq", e.ProducerSeq, e.ProducerSeq != 0)
	}
	add("bodyless", true, bodyless)
	add("undoes", undoes, undoes != 0)
	return o
}
