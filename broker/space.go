package broker

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// space gives back what dead messages take in the journal. Its work is never urgent and may be lost: a
// discard that a crash swallows is repeated by the recovered core, or only costs space.
type space struct {
	o *owner

	// more says that what is dead is worth the work now. It is made by the first call, before run starts.
	more chan struct{}

	mu       sync.Mutex
	dead     []journal.Range
	seqs     uint64 // in dead
	survivor *relocation
	running  bool
}

// Discards are gathered: each costs the store some work however much it takes away, and at low rates that would be one for each
// message. What is gathered stays small beside a store's memory, so that it is gone before the store has written it twice.
const (
	gatherLeast = 5 * time.Millisecond
	gatherMost  = time.Second
	gatherSeqs  = 64
)

// relocation is survivors to be stored anew, so that their records can go.
type relocation struct {
	spans   []queue.Span
	records []located
}

// discard hands over ranges of records whose bodies are dead. Called by the actor.
func (s *space) discard(spans []queue.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range spans {
		r := journal.Range{From: d.Seq, To: d.Seq + d.Count - 1}
		s.seqs += d.Count
		if n := len(s.dead); n > 0 && s.dead[n-1].To+1 == r.From {
			s.dead[n-1].To = r.To
			continue
		}
		s.dead = append(s.dead, r)
	}
	s.start()
}

// relocate hands over survivors. The core asks for one batch at a time. Called by the actor.
func (s *space) relocate(spans []queue.Span, records []located) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.survivor = &relocation{spans, records}
	s.start()
}

func (s *space) start() {
	if s.more == nil {
		s.more = make(chan struct{}, 1)
	}
	if !s.running {
		s.running = s.o.b.background(s.run)
	}
	if s.seqs >= gatherSeqs || s.survivor != nil {
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// gather waits until there is enough to do.
func (s *space) gather(ctx context.Context) {
	t := time.NewTimer(gatherLeast)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.o.done:
		return
	case <-ctx.Done():
		return
	}
	t.Reset(gatherMost)
	select {
	case <-t.C:
	case <-s.more:
	case <-s.o.done:
	case <-ctx.Done():
	}
}

func (s *space) run(ctx context.Context) {
	for {
		s.gather(ctx)
		s.mu.Lock()
		dead, survivor := s.dead, s.survivor
		s.dead, s.survivor, s.seqs = nil, nil, 0
		if (len(dead) == 0 && survivor == nil) || ctx.Err() != nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if len(dead) > 0 {
			s.discardNow(ctx, dead)
		}
		if survivor != nil {
			s.relocateNow(ctx, survivor)
		}
	}
}

func (s *space) discardNow(ctx context.Context, dead []journal.Range) {
	o := s.o
	if err := o.stream.DiscardBodies(ctx, dead); err != nil && ctx.Err() == nil {
		select {
		case <-o.done:
			return
		case <-time.After(100 * time.Millisecond): // not to spin on a store that is away
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		if len(s.dead) < 1<<16 {
			s.dead = append(dead, s.dead...)
		}
		s.mu.Unlock()
		o.log.Debug("discard of dead bodies failed, repeated later", "error", err)
	}
}

// relocateNow reads the survivors and gives them to the core, which stores those that are still alive.
func (s *space) relocateNow(ctx context.Context, rel *relocation) {
	o := s.o
	read, bad, err := o.readRecords(ctx, rel.records, nil)
	if err != nil {
		if ctx.Err() == nil {
			o.fail(err)
		}
		return
	}
	if len(bad) > 0 {
		if _, err := o.setAside(ctx, bad, nil, nil); err != nil {
			return // the queue is stopped
		}
	}
	var spans []queue.Span
	var frames [][]byte
	for _, span := range rel.spans {
		for span.Count > 0 {
			pieces, left := takeRead(read, span, nil)
			if len(pieces) == 0 { // discarded in the meantime, or damaged
				span = queue.Span{Seq: span.Seq + 1, Count: span.Count - 1}
				continue
			}
			p := pieces[0]
			spans = append(spans, p.Span)
			frames = append(frames, message.FrameFromSpans(nil, int(p.Count), p.data))
			span = left
		}
	}
	o.push(&cmdFunc{
		do: func(o *owner, a *turn) {
			if err := o.core.Relocated(a.Now(), spans, frames); err != nil {
				o.log.Error("bodies of survivors do not fit their messages", "error", err)
			}
		},
		lost: func(error) {},
	})
}
