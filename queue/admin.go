package queue

import (
	"fmt"

	"github.com/holdfastmq/holdfast/message"
)

// Configure replaces the configuration.
func (c *Core) Configure(now int64, t Token, cfg Config) {
	if err := cfg.Validate(); err != nil {
		c.reply(Reply{Token: t, Err: fmt.Errorf("configure: %w", err)})
		return
	}
	c.begin(now)
	cfg = cfg.WithDefaults()
	c.emit(Event{Kind: KindConfigured, Config: &cfg})
	c.reply(Reply{Token: t})
	c.finish()
}

// Pause stops handing out, or goes on. Sends, acks and everything else are not touched by it.
func (c *Core) Pause(now int64, t Token, paused bool) {
	c.begin(now)
	if paused != c.paused {
		c.emit(Event{Kind: KindPaused, Paused: paused})
	}
	c.reply(Reply{Token: t})
	c.finish()
}

// Purge deletes all messages below NextSeq, leased and moving ones too. Reply.N is how many.
func (c *Core) Purge(now int64, t Token) {
	c.begin(now)
	n := c.live.Len()
	if n > 0 {
		var leased []piece
		c.flights.Each(0, maxSeq, func(lo, hi uint64, f flight) bool {
			leased = append(leased, piece{lo, hi, f})
			return true
		})
		c.loseLeases(leased, LostPurged)
		c.emit(Event{Kind: KindPurged, Spans: []Span{{1, c.next - 1}}})
	}
	c.reply(Reply{Token: t, N: n})
	c.finish()
}

func checkRedrive(target string, limit int) error {
	if target != "" {
		if err := ValidName(target); err != nil {
			return fmt.Errorf("redrive: %w", err)
		}
	}
	if limit < 0 {
		return fmt.Errorf("redrive: %w", &message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", limit), Limit: "0 or more"})
	}
	return nil
}

// stateRun returns the state of the first of live messages lo…hi, and where the run of that state ends.
func (c *Core) stateRun(lo, hi uint64) (State, uint64) {
	if a, b, _, ok := c.flights.Next(lo); ok && a < hi {
		if a == lo {
			return StateInFlight, min(b, hi)
		}
		hi = a
	}
	if a, b, _, ok := c.moves.Next(lo); ok && a < hi {
		if a == lo {
			return StateMoving, min(b, hi)
		}
		hi = a
	}
	state := StateReady
	for _, s := range c.stateSets() {
		a, b, ok := s.set.NextRun(lo, hi)
		switch {
		case !ok:
		case a == lo:
			hi, state = b, s.state
		default:
			hi = a
		}
		if state != StateReady {
			break
		}
	}
	return state, hi
}
