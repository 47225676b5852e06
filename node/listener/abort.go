package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/roster-mesh/roster/limit"
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

// CloseAborted closes the connection of a stranger with its first call that is aborted. One who reads no
// answers has hundreds of calls on a connection, and to reset each stream costs as much as to refuse it.
func CloseAborted(server *http.Server) {
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}

	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				// The panic goes on, because net/http resets the stream by it.
				closeStranger(r.Context())
				panic(p)
			}
		}()

		next.ServeHTTP(w, r)
	})
}

// closeStranger closes the connection of a request, if its client presented no certificate.
func closeStranger(ctx context.Context) {
	secure, ok := ctx.Value(connKey{}).(*tls.Conn)
	if !ok {
		return
	}

	if limited, ok := secure.NetConn().(*limitedConn); ok && limited.isStranger() {
		_ = limited.Close() // not TLS's Close, which waits for a client that may not read
	}
}

func (c *limitedConn) isStranger() bool { return c.limiter.clientAt(c).Kind == limit.Stranger }
