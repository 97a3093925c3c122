package persistent

import "time"

// clock is the queue time: the wall clock as it was when the actor was opened, or the stream's last queue
// time if that is later, plus the monotonic time since. It goes on at the rate of time and never
// decreases, whatever is done to the wall clock.
type clock struct {
	now   func() time.Time
	start time.Time
	base  int64         // queue time at start, Unix ms
	past  time.Duration // the latest that elapsed returned
	held  bool          // it stands still until look
}

// newClock starts a clock that is not behind floor, in Unix ms.
func newClock(now func() time.Time, floor int64) clock {
	start := now()
	return clock{now: now, start: start, base: max(start.UnixMilli(), floor)}
}

// elapsed returns the time since the start.
func (c *clock) elapsed() time.Duration {
	if !c.held {
		c.past = max(c.past, c.now().Sub(c.start))
	}
	return c.past
}

// look sets the clock to what it is now, where it stands still until the next look: reading the time costs as much as a small command.
func (c *clock) look() {
	c.held = false
	c.elapsed()
	c.held = true
}

// ms returns the queue time.
func (c *clock) ms() int64 { return c.base + c.elapsed().Milliseconds() }

// at returns when, since the start, the queue time ms comes.
func (c *clock) at(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms-c.base, 0), most)) * time.Millisecond
}
