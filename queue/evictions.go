package queue

import "fmt"

// evictionPause is how long evictions are only counted after a warning, in ms (G3).
const evictionPause = 60_000

// evictions is what has been said about evicted bookkeeping.
type evictions struct {
	saidAt          int64 // queue time of the last warning, 0 for none
	producers, keys uint64
}

// warnOfEvictions says, at most once a minute, how many producers and dedup ids had to be forgotten: each may cost a duplicate, none
// a message.
func (c *Core) warnOfEvictions() {
	w := &c.said
	producers, keys := c.counts.producersEvicted-w.producers, c.counts.dedupEvicted-w.keys
	if producers+keys == 0 || w.saidAt != 0 && c.now < w.saidAt+evictionPause {
		return
	}
	w.saidAt, w.producers, w.keys = c.now, c.counts.producersEvicted, c.counts.dedupEvicted
	c.effect(Warning{fmt.Sprintf("%d producers and %d dedup ids were forgotten for want of room: what they send again may be stored twice", producers, keys)})
}
