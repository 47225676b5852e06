package listener

import "github.com/roster-mesh/roster/limit"

// An idle connection takes 40 to 90 KiB, so those of strangers together may take 23 MiB, and those of
// other domains twice that. An identity of the own domain is bounded by its connections alone.
const (
	idleStrangers = 256
	idleForeign   = 512
)

// setIdle notes that a connection has no request now, or has one again. If its client has its share of
// idle connections, the one of that share that is idle for longest is closed.
func (c *limitedConn) setIdle(idle bool) {
	if closing := c.limiter.setIdle(c, idle); closing != nil {
		c.limiter.config.Rejected()
		_ = closing.Close()
	}
}

// setIdle returns the connection that must be closed; nil if there is room.
func (l *connLimiter) setIdle(conn *limitedConn, idle bool) (evicted *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case !idle:
		l.endIdle(conn)
	// net/http may report a connection as idle twice, or after its end.
	case conn.leaveIdle == nil && conn.release != nil && conn.client.Kind != limit.Own:
		conn.leaveIdle, evicted = l.idle.enter(conn, conn.client)
	}

	return evicted
}

// endIdle gives the place of an idle connection back, if it has one. The lock is held.
func (l *connLimiter) endIdle(conn *limitedConn) {
	if conn.leaveIdle != nil {
		conn.leaveIdle()
		conn.leaveIdle = nil
	}
}
