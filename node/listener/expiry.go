package listener

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// renewal is how long before its certificate ends a client is asked to connect again;
// for a certificate of less than eight times that, an eighth of its lifetime.
const renewal = 30 * time.Second

// ExpireWithCertificates ends the connections of a server with the certificates that
// their clients presented. For some time before, answers ask the client to connect again,
// so that one with a renewed certificate loses no request.
//
// valid reports whether a certificate would be accepted now. If not, because its CA was
// removed from the bundle of its domain, the next answer is the connection's last. The
// returned function closes such connections at once, with the streams on them; the caller
// calls it once a bundle has changed.
func ExpireWithCertificates(server *http.Server, valid func(*tls.ConnectionState, time.Time) bool) (
	closeInvalid func()) {
	timers := &expiryTimers{valid: valid, byConn: map[*tls.Conn]*time.Timer{}}
	server.ConnState = timers.stateChanged

	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if timers.endsSoon(r.TLS) {
			// In HTTP/2, net/http sends GOAWAY for it.
			w.Header().Set("Connection", "close")
		}

		next.ServeHTTP(w, r)
	})

	return timers.closeInvalid
}

// expiryTimers closes connections when their clients' certificates end.
type expiryTimers struct {
	valid func(*tls.ConnectionState, time.Time) bool

	mu     sync.Mutex
	byConn map[*tls.Conn]*time.Timer // of open connections with a certificate
}

// endsSoon reports whether a client should connect again by a renewed certificate.
func (e *expiryTimers) endsSoon(state *tls.ConnectionState) bool {
	expiry := trust.Expiry(state)
	if expiry.IsZero() {
		return false // it has no certificate
	}

	lifetime := expiry.Sub(state.PeerCertificates[0].NotBefore)

	return time.Until(expiry) < min(renewal, lifetime/8) || !e.valid(state, time.Now())
}

// closeInvalid closes the connections whose clients' certificates are not valid.
func (e *expiryTimers) closeInvalid() {
	e.mu.Lock()
	open := slices.Collect(maps.Keys(e.byConn))
	e.mu.Unlock()

	for _, conn := range open {
		state := conn.ConnectionState()
		if !e.valid(&state, time.Now()) {
			_ = conn.NetConn().Close() // not TLS's Close, which waits for a client that may not read
		}
	}
}

// stateChanged implements http.Server's ConnState. A connection becomes active after its
// handshake, and in HTTP/1 again with its first request.
func (e *expiryTimers) stateChanged(conn net.Conn, state http.ConnState) {
	secure := conn.(*tls.Conn) // the server speaks TLS alone

	// follow names the client, on whose share setIdle depends.
	e.follow(secure, state)

	if limited, ok := secure.NetConn().(*limitedConn); ok && (state == http.StateIdle || state == http.StateActive) {
		limited.setIdle(state == http.StateIdle)
	}
}

// follow sets and stops the timer of a connection.
func (e *expiryTimers) follow(secure *tls.Conn, state http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()

	switch state {
	case http.StateActive:
		if e.byConn[secure] == nil {
			e.start(secure)
		}
	case http.StateClosed, http.StateHijacked:
		if timer := e.byConn[secure]; timer != nil {
			timer.Stop()
			delete(e.byConn, secure)
		}
	}
}

// start sets the timer of a connection after its handshake, and names the client to the
// limiter of its listener. The lock is held.
func (e *expiryTimers) start(conn *tls.Conn) {
	state := conn.ConnectionState()

	if limited, ok := conn.NetConn().(*limitedConn); ok {
		limited.HandshakeDone(&state)
	}

	if expiry := trust.Expiry(&state); !expiry.IsZero() {
		if !e.valid(&state, time.Now()) { // a bundle has changed since the handshake
			_ = conn.NetConn().Close()
		}

		e.byConn[conn] = time.AfterFunc(time.Until(expiry), func() { _ = conn.Close() })
	}
}
