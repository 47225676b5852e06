package node

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// An expiring ends the connections of a server with the certificates that their
// clients showed (trust.md, "Identities"). Before that, for a while, each answer asks
// its client to connect again, so that one whose certificate was renewed loses nothing.
type expiring struct {
	mu   sync.Mutex
	ends map[net.Conn]*time.Timer // of open connections with a certificate
}

// renewal is how long before a certificate's end its client is asked to connect again;
// of one that lives less than eight times as long, an eighth of its life.
const renewal = 30 * time.Second

// expire has the connections of s end so. Where holds says that a certificate would not
// be taken now, since its CA was taken out of its domain's bundle, the next answer is
// the connection's last.
func expire(s *http.Server, holds func(*tls.ConnectionState, time.Time) bool) {
	e := &expiring{ends: map[net.Conn]*time.Timer{}}
	s.ConnState = e.changed
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := trust.Expiry(r.TLS)
		if !end.IsZero() && (time.Until(end) < min(renewal, end.Sub(r.TLS.PeerCertificates[0].NotBefore)/8) || !holds(r.TLS, time.Now())) {
			w.Header().Set("Connection", "close") // of HTTP/2 net/http makes a GOAWAY of it
		}
		next.ServeHTTP(w, r)
	})
}

// changed implements http.Server's ConnState: active is what a connection is once its
// handshake is over, and, in HTTP/1, its first request there.
func (e *expiring) changed(c net.Conn, now http.ConnState) {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now {
	case http.StateActive:
		if e.ends[c] != nil {
			return
		}
		state := secure.ConnectionState()
		if p, ok := secure.NetConn().(*present); ok {
			p.Settled(&state)
		}
		if end := trust.Expiry(&state); !end.IsZero() {
			e.ends[c] = time.AfterFunc(time.Until(end), func() { _ = c.Close() })
		}
	case http.StateClosed, http.StateHijacked:
		if timer := e.ends[c]; timer != nil {
			timer.Stop()
			delete(e.ends, c)
		}
	}
}
