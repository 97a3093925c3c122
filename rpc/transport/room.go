package transport

// Full returns nil if at most limit bytes wait to be written, else a channel that is closed when some of them were.
// It is for what can be lost, and what can wait for its turn without holding up reading.
func (c *Conn) Full(limit int) <-chan struct{} { return c.out.full(limit) }
