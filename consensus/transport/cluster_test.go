package transport

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	voter  = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/voter")
	reader = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/reader")
	former = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/former")
)

// newRing returns a cluster of a voter and a reader, and a function that connects a node to it.
func newRing(t *testing.T) (cluster *Cluster, connect func(peer spiffeid.ID, proto string) *tracked) {
	cluster = New(Options{
		Listener: newAcceptor(&net.TCPAddr{}), ServerTLS: &tls.Config{}, ClientTLS: &tls.Config{},
		Log:   slog.New(slog.DiscardHandler),
		Known: func() []Member { return []Member{{ID: voter}, {ID: reader}} },
		Votes: func(id spiffeid.ID) bool { return id == voter },
		Claim: func() Claim { return Claim{History: History{1}} },
	})

	return cluster, func(peer spiffeid.ID, proto string) *tracked {
		_, there := net.Pipe()

		conn, err := cluster.track(there)
		must(t, err)

		conn.peer, conn.proto = peer, proto

		return conn
	}
}

// The connections of former members end, and those of another history, of a reader that speaks Raft, and of a
// certificate that isn't trusted any more. A former member gets the answer for which it waits, by which it learns that
// it has left.
func TestEvictEndsWhatIsAllowedNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		peer   spiffeid.ID
		proto  string
		change func(*tracked)
		stays  bool
	}{
		"a member":             {voter, ProtocolRaft, func(*tracked) {}, true},
		"a reader":             {reader, ProtocolHTTP, func(*tracked) {}, true},
		"a reader's Raft":      {reader, ProtocolRaft, func(*tracked) {}, false},
		"Raft to a reader":     {reader, ProtocolRaft, func(t *tracked) { t.raft = true }, true},
		"a former member":      {former, ProtocolHTTP, func(*tracked) {}, false},
		"one that waits":       {former, ProtocolHTTP, func(t *tracked) { t.busy = true }, true},
		"one that has written": {former, ProtocolWrite, func(t *tracked) { t.asked = 1 }, true},
		"one that knocks":      {former, protocolJoin, func(*tracked) {}, true},
		"our history": {voter, ProtocolHTTP,
			func(t *tracked) { t.claim.History = History{1} }, true},
		"another history": {voter, ProtocolHTTP,
			func(t *tracked) { t.claim.History = History{2} }, false},
		"a trusted certificate": {voter, ProtocolHTTP,
			func(t *tracked) { t.judge = func() error { return nil } }, true},
		"an untrusted certificate": {voter, ProtocolHTTP,
			func(t *tracked) { t.judge = func() error { return ErrNotMember } }, false},
	} {
		cluster, connect := newRing(t)
		conn := connect(c.peer, c.proto)
		c.change(conn)
		cluster.Evict()

		if _, stays := cluster.conns[conn]; stays != c.stays {
			t.Errorf("%s: its connection stays: %t", name, stays)
		}

		must(t, cluster.Close())
	}
}

// A member that keeps silent has no Raft to others, and takes their messages.
func TestSilenceEndsRaftToOthers(t *testing.T) {
	cluster, connect := newRing(t)
	from, to := connect(voter, ProtocolRaft), connect(voter, ProtocolRaft)
	must(t, cluster.trackRaft(to))

	cluster.Silence(true)
	cluster.loops.Wait()

	_, hears := cluster.conns[from]
	_, speaks := cluster.conns[to]

	if !hears || speaks {
		t.Errorf("a silent member hears: %t, speaks: %t", hears, speaks)
	}

	if err := cluster.trackRaft(connect(voter, ProtocolRaft)); !errors.Is(err, errSilent) {
		t.Errorf("a silent member begins to speak: %v", err)
	}

	cluster.Silence(false)
	must(t, cluster.trackRaft(connect(voter, ProtocolRaft)))
	must(t, cluster.Close())
}
