package pebble

import (
	"context"
	"fmt"
	"time"
)

const (
	// tickEvery is how often maintain looks around: how long discards and buffered records wait at most
	// where nothing else is stored.
	tickEvery = 250 * time.Millisecond
	// garbageEvery is how often it looks for garbage.
	garbageEvery = time.Second
)

func (j *Journal) start() {
	j.loops.Add(3)
	go j.commitLoop()
	go j.completeLoop()
	go j.maintainLoop()
}

func (j *Journal) kickMark() {
	select {
	case j.markKick <- struct{}{}:
	default:
	}
}

// maintainLoop does what nobody waits for: the mark, the ballast, late syncs, garbage.
func (j *Journal) maintainLoop() {
	defer j.loops.Done()
	if j.opts.ReadOnly {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var g garbage
	defer g.stop()
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var saved, collected time.Time
	kicked := true
	for {
		now := time.Now()
		j.space.look(true)
		if j.refuse() == nil && !j.engine().standIn {
			if kicked || now.Sub(saved) >= j.opts.MarkEvery-tickEvery/2 && j.durable.Load() != j.marked.commit {
				saved = now
				if err := j.saveMark(); err != nil {
					j.warn("journal: high-water mark not written", "err", err)
				}
			}
			j.q.flush()
			if j.unsaved.Load() > j.durable.Load() {
				j.q.put(&op{kind: opSync, done: make(chan error, 1)})
			}
			if now.Sub(collected) >= garbageEvery {
				collected = now
				g.look(ctx, j)
			}
		}
		kicked = false
		select {
		case <-j.closing:
			return
		case <-t.C:
		case <-j.markKick:
			kicked = true
		}
	}
}

// saveMark writes the mark. It is called by one goroutine at a time.
func (j *Journal) saveMark() error {
	m := mark{gen: j.marked.gen + 1, commit: j.durable.Load(), streams: map[uint32]markedStream{}}
	e := j.engine()
	m.files = e.g.metaFiles()
	if e.lost() {
		return nil // there will be another engine
	}
	for _, st := range j.allStreams() {
		st.mu.Lock()
		if s := &st.sure; s.epoch > 0 {
			m.streams[st.no] = markedStream{st.name, s.uid, s.epoch, s.end, s.endCRC}
		}
		st.mu.Unlock()
	}
	if err := writeMark(j.fs, j.dir, &m); err != nil {
		if isNoSpace(err) {
			j.space.noSpace()
		}
		return err
	}
	j.marked = m
	return nil
}

// garbage gives space back that the engine by itself would only give back when more is
// written.
type garbage struct {
	running chan struct{} // closed when the compaction is over
	cancel  context.CancelFunc
	live    int64     // when the compaction began
	left    int64     // garbage that the last compaction could not give back
	ended   time.Time // when that was
	high    int       // looks in a row that found too much
}

// After so long, what the last compaction left is tried again.
const (
	retryGarbage      = time.Minute
	retryGarbageShort = 5 * time.Second // where disk space is short
)

// look starts a compaction if tables hold much more than what is alive, twice in a row.
func (g *garbage) look(ctx context.Context, j *Journal) {
	live := j.liveBytes()
	found := j.tableBytes() - live
	if g.running != nil {
		select {
		case <-g.running:
			g.stop()
			// What died meanwhile does not count.
			g.left, g.ended = max(found-max(g.live-live, 0), 0), time.Now()
		default:
			return
		}
	}
	some := int64(j.opts.MemTableBytes) / 2
	most, retry, looks := some+live/2, retryGarbage, 2
	if j.space.level.Load() != spaceOK { // every byte counts
		most, retry, looks = some, retryGarbageShort, 1
	}
	if time.Since(g.ended) < retry {
		most = max(most, g.left+some)
	}
	if g.high++; found <= most {
		g.high = 0
	}
	if g.high < looks {
		return
	}
	g.high, g.live = 0, live
	ctx, g.cancel = context.WithCancel(ctx)
	g.running = make(chan struct{})
	go func() {
		defer close(g.running)
		if err := j.compact(ctx); err != nil && ctx.Err() == nil {
			j.warn("journal: garbage was not collected", "err", oneLine(err))
		}
	}()
}

// stop ends the compaction, if there is one.
func (g *garbage) stop() {
	if g.running != nil {
		g.cancel()
		<-g.running
		g.running = nil
	}
}

// compact flushes the memtable, whose tombstones are what makes garbage of what is in tables, and
// compacts everything.
func (j *Journal) compact(ctx context.Context) (err error) {
	e, err := j.use()
	if err != nil {
		return err
	}
	defer e.leave()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("engine: %v", r)
			e.g.kill(err)
		}
	}()
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.g.died:
		return e.g.alive()
	}
	return e.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
}
