package listener

// A handshake takes half a millisecond of a processor, and a peer with many identities may begin a thousand at once.
// Without a bound they would all be in the scheduler's queue before the requests of other connections. So until a
// connection's handshake is done, its work takes a slot: from a read that brought something to the next read or write.
// A silent client holds none.

// Read implements net.Conn.
func (c *limitedConn) Read(data []byte) (int, error) {
	c.endStep()

	n, err := c.Conn.Read(data)
	if n > 0 && c.limiter.config.Paced && !c.settled.Load() {
		c.limiter.handshakes <- struct{}{}
		c.working.Store(true)
	}

	return n, err
}

// Write implements net.Conn.
func (c *limitedConn) Write(data []byte) (int, error) {
	c.endStep()

	return c.Conn.Write(data)
}

// settle notes the end of the handshake.
func (c *limitedConn) settle() {
	c.settled.Store(true)
	c.endStep()
}

// endStep gives the slot of a handshake's step back, if the connection has one.
func (c *limitedConn) endStep() {
	if c.working.CompareAndSwap(true, false) {
		<-c.limiter.handshakes
	}
}
