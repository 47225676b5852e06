package node

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// How a connection ends by its client certificate.
const (
	// giveUp is how long before the end an answer tells the client to connect again: over
	// the longest that most requests take, and what comes next is not refused.
	giveUp = time.Minute
	// lastWord is how long after the end what says so may take.
	lastWord = time.Second
)

// An ending lets no connection of a server live longer than its client certificate
// (trust.md, "Identities"). A client that was renewed meanwhile is not refused for it:
// it would show the old certificate for as long as it keeps the connection busy.
type ending struct {
	mu     sync.Mutex // guards timers
	timers map[net.Conn]*time.Timer
}

// endWithCertificates has the connections of s end so. holds reports whether a client
// certificate would be taken now.
func endWithCertificates(s *http.Server, holds func(*tls.ConnectionState, time.Time) bool) {
	e := &ending{timers: map[net.Conn]*time.Timer{}}
	s.ConnState, s.Handler = e.note, announceEnd(s.Handler, holds)
}

// note ends a connection at its time, from its first request on.
func (e *ending) note(conn net.Conn, state http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	timer, known := e.timers[conn]
	switch state {
	case http.StateActive:
		c, ok := conn.(*tls.Conn)
		if !ok || known {
			return
		}
		cs := c.ConnectionState()
		if end := trust.Expiry(&cs); !end.IsZero() {
			e.timers[conn] = time.AfterFunc(time.Until(end)+lastWord, func() { _ = c.NetConn().Close() })
		}
	case http.StateClosed, http.StateHijacked:
		if known {
			timer.Stop()
			delete(e.timers, conn)
		}
	}
}

// announceEnd has clients connect anew soon before their certificate ends, and once
// their domain's bundle certifies it no longer: who was renewed loses no request, and
// who can't be is out with the next handshake. Over HTTP/2 it is a GOAWAY: what is under
// way goes on, and nothing more is taken.
func announceEnd(next http.Handler, holds func(*tls.ConnectionState, time.Time) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := trust.Expiry(r.TLS)
		if !end.IsZero() && (time.Until(end) < giveUp || !holds(r.TLS, time.Now())) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
