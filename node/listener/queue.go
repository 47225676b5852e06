package listener

import (
	"container/list"

	"github.com/roster-mesh/roster/limit"
)

// A queue is a pool of places in which the oldest place makes room for a new one. Each share has one place
// at least.
type queue struct {
	*limit.Shares
	places list.List // of *place, the oldest first
}

// A place is that of one connection.
type place struct {
	conn   *limitedConn
	client limit.Caller // that it counts for
	leave  func()
}

// enter gives a connection a place until leave is called, which may be called twice. evicted, unless it is nil, is
// the connection whose place was taken for it: the oldest one of the share that is used up.
func (q *queue) enter(conn *limitedConn, client limit.Caller) (leave func(), evicted *limitedConn) {
	release, refused := q.Take(client, 1)
	if refused != nil {
		oldest := q.oldest(refused.Scope, client)
		evicted = oldest.conn
		oldest.leave()

		// Every share of the client's had a place left or was one of the oldest's, so this is not refused.
		release, _ = q.Take(client, 1)
	}

	entered := &place{conn: conn, client: client}
	at := q.places.PushBack(entered)
	entered.leave = func() {
		q.places.Remove(at)
		release()
	}

	return entered.leave, evicted
}

// oldest returns the oldest place of a share that is used up, which has one.
func (q *queue) oldest(scope limit.Scope, client limit.Caller) *place {
	at := q.places.Front()
	for !shares(scope, at.Value.(*place).client, client) {
		at = at.Next()
	}

	return at.Value.(*place)
}

// shares reports whether two clients have their places of one share.
func shares(scope limit.Scope, one, other limit.Caller) bool {
	switch scope {
	case limit.ScopeCaller:
		return one.ID == other.ID
	case limit.ScopeGroup:
		return one.Group == other.Group
	}

	return one.Kind == other.Kind
}
