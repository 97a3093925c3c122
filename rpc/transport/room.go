package transport

// Room reports whether less waits to be written than Options.Buffer. It is for what may be lost, and is not to be
// sent where it would only pile up.
func (c *Conn) Room() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.size < c.o.Buffer
}
