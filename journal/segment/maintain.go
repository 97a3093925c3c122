package segment

import (
	"context"
	"fmt"
	"time"
)

// tickEvery is how often maintain looks around: how long discards and buffered records wait at most where nothing else is stored.
const tickEvery = 250 * time.Millisecond

func (j *Journal) start() {
	j.loops.Add(2)
	go j.commitLoop()
	go j.completeLoop()
	if j.opts.ReadOnly {
		return
	}
	var ctx context.Context
	ctx, j.cancel = context.WithCancel(context.Background())
	j.helpers.Add(3)
	go j.maintainLoop(ctx)
	go j.prepareLoop()
	go j.moveLoop(ctx)
	j.kickPrepare()
}

func (j *Journal) kickMark() {
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

func (j *Journal) kickPrepare() {
	select {
	case j.prepare <- struct{}{}:
	default:
	}
}

// prepareLoop makes the next segment ready before it is needed, and writes zeros ahead.
func (j *Journal) prepareLoop() {
	defer j.helpers.Done()
	for {
		select {
		case <-j.closing:
			return
		case <-j.prepare:
		}
		if j.refuse() != nil || j.isBroken() {
			continue
		}
		j.dropCached()
		err := j.files.prepare()
		if err == nil && j.space.ample() {
			err = j.zeroAhead()
		}
		if err != nil {
			if isNoSpace(err) {
				j.space.noSpace()
			}
			j.warn("journal: the next segment cannot be made ready", "dir", j.dir, "err", err)
		}
	}
}

// uncachedWithin is how fast a segment has to be filled for those before it to be dropped from the operating system's cache.
const uncachedWithin = time.Second

// dropCached lets the operating system drop what it caches of the segment before one that was filled fast. At such a pace the cache would grow by new
// memory all the time, which costs the writer more than the copy itself (a virtual machine may have to ask its host for each page), while what was
// just dropped is used again. The broker has the bodies that are handed out next, and who is further behind reads from the disk.
func (j *Journal) dropCached() {
	filled := j.uncache.Swap(nil)
	if filled == nil {
		return
	}
	s := j.files.get(filled.number - 1)
	if s == nil || s.bad.Load() {
		return
	}
	s.pins.Add(1)
	defer s.pins.Add(-1)
	if f, err := j.files.handle(s); err == nil { // else whoever reads it will hear of it
		f.Forget()
	}
}

// zeroAhead writes zeros behind the log's end.
func (j *Journal) zeroAhead() error {
	j.files.zeroing.Lock()
	defer j.files.zeroing.Unlock()
	s := j.current.Load()
	if s == nil {
		return nil
	}
	return j.files.zeroAhead(s, j.durablePos().off)
}

// maintainLoop does what nobody waits for: the mark, the ballast, late syncs, checkpoints.
func (j *Journal) maintainLoop(ctx context.Context) {
	defer j.helpers.Done()
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var saved time.Time
	kicked := true
	for {
		now := time.Now()
		j.space.look(true)
		if j.refuse() == nil && !j.isBroken() {
			if kicked || now.Sub(saved) >= j.opts.MarkEvery-tickEvery/2 && j.durable.Load() != j.marked.pos.n {
				saved = now
				if err := j.saveMark(false); err != nil {
					j.warn("journal: high-water mark not written", "err", err)
				}
			}
			j.q.flush()
			if j.unsaved.Load() > j.durable.Load() {
				j.q.put(&op{kind: opSync, done: make(chan error, 1)})
			}
			if err := j.tidy(ctx); err != nil && ctx.Err() == nil {
				if isNoSpace(err) {
					j.space.noSpace()
				}
				j.warn("journal: checkpoint not written", "err", err)
			}
			j.kickPrepare()
		}
		kicked = false
		select {
		case <-j.closing:
			return
		case <-t.C:
		case <-j.kick:
			kicked = true
		}
	}
}

// calmAfter is how long after the last change of the segment that is written to fewer are kept.
const calmAfter = 3 * time.Second

// checkpointShare is how many bytes of log are written for one of a checkpoint, at least.
const checkpointShare = 16

// tidy writes a checkpoint if it is time, and takes segments out of use that are not needed.
func (j *Journal) tidy(ctx context.Context) error {
	j.maintaining.Lock()
	defer j.maintaining.Unlock()
	pos := j.durablePos()
	tail := j.tailBytes(pos)
	short := j.space.level.Load() != spaceOK
	due := tail >= max(j.files.size/4, checkpointShare*int64(j.ck.size)) && pos.seg != j.ck.pos.seg
	if !due && j.wanted.Load() || !due && short {
		due = pos.n != j.ck.pos.n && (j.wanted.Load() || tail > int64(j.ck.size))
	}
	if due || j.ck.stale != ([2]bool{}) {
		j.wanted.Store(false)
		if err := j.saveCheckpoint(ctx); err != nil {
			return err
		}
		// Before segments are used again, so that without the checkpoint it still has what became of the streams; see salvage.go.
		if err := j.saveMarkOf(j.ck.pos.n, false); err != nil {
			return err
		}
	}
	return j.recycle()
}

// tailBytes is how much log is behind the checkpoint.
func (j *Journal) tailBytes(pos position) int64 {
	if pos.seg == j.ck.pos.seg {
		return pos.off - j.ck.pos.off
	}
	n := pos.off
	j.files.mu.Lock()
	defer j.files.mu.Unlock()
	for number, s := range j.files.segs {
		if number >= j.ck.pos.seg && number < pos.seg {
			n += s.size.Load()
		}
	}
	return n
}

// recycle takes segments out of use that nothing needs.
func (j *Journal) recycle() error {
	active := j.current.Load()
	keep := maxFree
	if j.space.level.Load() != spaceOK || time.Since(time.Unix(0, j.switched.Load())) > calmAfter {
		keep = 1
	}
	_, err := j.files.recycle(func(s *segment) bool {
		return s == active || s.bad.Load() && s.size.Load() > 0 || s.number >= j.ck.pos.seg || s.live.Load() != 0 || s.movedAt.Load() > j.ck.pos.n
	}, keep)
	j.files.closeUnused(j.durablePos().seg)
	if err != nil {
		return fmt.Errorf("remove segments: %w", err)
	}
	return nil
}

// saveMark writes the mark.
func (j *Journal) saveMark(clean bool) error {
	j.maintaining.Lock()
	ck := j.ck.pos.n
	j.maintaining.Unlock()
	return j.saveMarkOf(ck, clean)
}

// saveMarkOf writes the mark, with the last batch that the checkpoint has.
func (j *Journal) saveMarkOf(ck uint64, clean bool) error {
	j.markMu.Lock()
	defer j.markMu.Unlock()
	m := mark{gen: j.marked.gen + 1, clean: clean, pos: j.durablePos(), checkpoint: ck, streams: map[uint32]markedStream{}}
	for _, st := range j.allStreams() {
		st.mu.Lock()
		if s := &st.sure; s.epoch > 0 && st.damage == nil {
			m.streams[st.no] = markedStream{st.name, *s}
		}
		st.mu.Unlock()
	}
	for no, s := range j.kept {
		m.streams[no] = s
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
