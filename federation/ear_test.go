package federation

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An ear hears every byte that nodes receive, by gossip in the clear, because it
// stands between any two with both ends' certificates, and by HTTP.
type ear struct {
	nodes *gossipNet
	ids   map[string]spiffeid.ID // by gossip address

	mu     sync.Mutex
	gossip map[spiffeid.TrustDomain][]*bytes.Buffer // of the receivers, one a connection
	http   map[spiffeid.TrustDomain][][]byte
}

func newEar(nodes *gossipNet) *ear {
	return &ear{
		nodes: nodes, ids: map[string]spiffeid.ID{},
		gossip: map[spiffeid.TrustDomain][]*bytes.Buffer{}, http: map[spiffeid.TrustDomain][][]byte{},
	}
}

// dialFrom stands in for the wire's.
func (e *ear) dialFrom(id spiffeid.ID, self string) func(context.Context, string) (net.Conn, error) {
	dial := e.nodes.wire.DialFrom(self)
	e.ids[self] = id

	return func(ctx context.Context, address string) (net.Conn, error) {
		far, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}

		own, near := e.nodes.wire.Pipe(self, address)
		go e.between(near, far, id, e.ids[address])

		return own, nil
	}
}

// between carries what caller and callee say to each other until one of them ends.
func (e *ear) between(near, far net.Conn, caller, callee spiffeid.ID) {
	server, _ := e.nodes.tls(callee)
	_, client := e.nodes.tls(caller)
	server.NextProtos, client.NextProtos = []string{"http/1.1"}, []string{gossip.Protocol, "http/1.1"}
	a, b := tls.Server(near, server), tls.Client(far, client)

	var ways sync.WaitGroup
	ways.Go(func() { e.carry(b, a, callee) })
	ways.Go(func() { e.carry(a, b, caller) })
	ways.Wait()
}

func (e *ear) carry(to, from *tls.Conn, receiver spiffeid.ID) {
	defer to.NetConn().Close()
	defer from.NetConn().Close()
	kept := &bytes.Buffer{}
	e.mu.Lock()
	td := receiver.TrustDomain()
	e.gossip[td] = append(e.gossip[td], kept)
	e.mu.Unlock()
	_, _ = io.Copy(to, io.TeeReader(from, writerFunc(func(p []byte) {
		e.mu.Lock()
		defer e.mu.Unlock()
		kept.Write(p)
	})))
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// answer is a world's tap.
func (e *ear) answer(_ string, r *http.Request, body []byte) []byte {
	id, _ := spiffeid.FromString(r.Header.Get(callerHeader))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.http[id.TrustDomain()] = append(e.http[id.TrustDomain()], body)

	return body
}

// forget begins anew.
func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.http)

	for _, all := range e.gossip {
		for _, b := range all {
			b.Reset()
		}
	}
}

// heard counts in how many connections and answers a domain received any of these,
// plain or inside of base64url.
func (e *ear) heard(by spiffeid.TrustDomain, texts ...string) (gossip, answers int) {
	e.mu.Lock()
	defer e.mu.Unlock()

	in := func(b []byte) bool {
		return slices.ContainsFunc(texts, func(s string) bool {
			return slices.ContainsFunc(traces(s), func(trace string) bool { return bytes.Contains(b, []byte(trace)) })
		})
	}
	for _, b := range e.gossip[by] {
		if in(b.Bytes()) {
			gossip++
		}
	}

	for _, b := range e.http[by] {
		if in(b) {
			answers++
		}
	}

	return gossip, answers
}

// traces returns what of a text is to be seen in base64url, wherever in the
// encoded bytes it stands, and the text itself.
func traces(s string) []string {
	all := []string{s}
	for i, skip := range []int{0, 2, 3} {
		enc := directory.B64.EncodeToString(append(make([]byte, i), s...))
		if (i+len(s))%3 != 0 {
			enc = enc[:len(enc)-1] // whose bits are the next byte's, too
		}

		all = append(all, enc[skip:])
	}

	return all
}
