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
func (l *connLimiter) setIdle(conn *limitedConn, idle bool) (closing *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !idle {
		l.endIdle(conn)
		return nil
	}

	// net/http may report a connection as idle twice, or after its end.
	if conn.idled != nil || conn.release == nil || conn.client.Kind == limit.Own {
		return nil
	}

	release, refused := l.idle.Take(conn.client, 1)
	if refused != nil {
		if closing = l.longestIdle(conn.client, refused.Scope); closing != nil {
			l.endIdle(closing)
			release, refused = l.idle.Take(conn.client, 1)
		}
	}

	if refused != nil {
		// No other connection can make room, so the one that became idle has to go.
		return conn
	}

	conn.leaveIdle = release
	conn.idled = l.idling.PushBack(conn)

	return closing
}

// endIdle gives the place of an idle connection back, if it has one. The lock is held.
func (l *connLimiter) endIdle(conn *limitedConn) {
	if conn.idled == nil {
		return
	}

	conn.leaveIdle()
	l.idling.Remove(conn.idled)
	conn.idled = nil
}

// longestIdle returns the connection that is idle for longest of those whose end makes room in a scope
// for one of a client.
func (l *connLimiter) longestIdle(client limit.Caller, scope limit.Scope) *limitedConn {
	for at := l.idling.Front(); at != nil; at = at.Next() {
		conn := at.Value.(*limitedConn)

		switch {
		case scope == limit.ScopeCaller && conn.client.ID != client.ID,
			scope == limit.ScopeGroup && conn.client.Group != client.Group,
			conn.client.Kind != client.Kind:
		default:
			return conn
		}
	}

	return nil
}
