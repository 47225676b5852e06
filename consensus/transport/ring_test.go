package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	server  = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/server")
	vouched = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/vouched")
)

// A mesh has clusters over TLS, which find each other in memory, by address.
type mesh struct {
	t         *testing.T
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	listeners map[string]*acceptor
}

func newMesh(t *testing.T) *mesh {
	m := &mesh{t: t, listeners: map[string]*acceptor{}}
	m.authority, m.key = m.sign(&x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})

	return m
}

// sign makes a certificate of an hour.
func (m *mesh) sign(cert *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(m.t, err)

	cert.SerialNumber, cert.NotBefore, cert.NotAfter = big.NewInt(1), time.Now(), time.Now().Add(time.Hour)

	parent, by := m.authority, m.key
	if parent == nil {
		parent, by = cert, key
	}

	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), by)
	must(m.t, err)

	made, err := x509.ParseCertificate(der)
	must(m.t, err)

	return made, key
}

// join adds the cluster of a node at an address, and closes it at the end of the test.
func (m *mesh) join(id spiffeid.ID, address string, tune func(*Options)) *Cluster {
	uri, err := url.Parse(id.String())
	must(m.t, err)

	cert, key := m.sign(&x509.Certificate{URIs: []*url.URL{uri}, DNSNames: []string{"node"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	pool, pair := x509.NewCertPool(), []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	pool.AddCert(m.authority)

	m.listeners[address] = newAcceptor(&net.TCPAddr{})
	options := Options{
		Listener: m.listeners[address], Dial: m.dial, Log: slog.New(slog.DiscardHandler),
		ServerTLS: &tls.Config{Certificates: pair, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			SessionTicketsDisabled: true},
		ClientTLS: &tls.Config{Certificates: pair, RootCAs: pool, ServerName: "node"},
		Known: func() []Member {
			return []Member{{voter, "voter"}, {reader, "reader"}, {server, "server"}}
		},
		Votes:   func(id spiffeid.ID) bool { return id == voter || id == server },
		Vouched: func(_ context.Context, id spiffeid.ID) bool { return id == vouched },
		Claim:   func() Claim { return Claim{History: History{1}, Voter: true} },
		Judge: func(_ spiffeid.ID, claim Claim) error {
			if (claim != Claim{History: History{1}, Voter: true}) {
				return errors.New("it is of another history")
			}

			return nil
		},
		Others: func(spiffeid.ID) []string { return nil },
	}

	if tune != nil {
		tune(&options)
	}

	cluster := New(options)
	m.t.Cleanup(func() { must(m.t, cluster.Close()) })

	return cluster
}

func (m *mesh) dial(ctx context.Context, address string) (net.Conn, error) {
	listener := m.listeners[address]
	if listener == nil {
		return nil, errors.New("nobody listens")
	}

	here, there := net.Pipe()

	return here, listener.give(ctx, there)
}

// greet writes a text to each connection that it accepts.
func greet(accept func() (net.Conn, error), text string) {
	for {
		conn, err := accept()
		if err != nil {
			return
		}

		go func() {
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
	}
}

// lets reports whether the server at an address answers a node over a protocol.
func lets(t *testing.T, c *Cluster, address, proto string) bool {
	open := func() (net.Conn, error) { return c.Connect(t.Context(), address, proto) }
	if proto == protocolJoin {
		open = func() (net.Conn, error) { return c.dialGuest(t.Context(), address) }
	}

	conn, err := open()
	if err != nil {
		return false
	}

	defer func() { _ = conn.Close() }()

	_, _ = io.WriteString(conn, map[string]string{
		ProtocolHTTP: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		protocolJoin: "GET / HTTP/1.1\r\nHost: server\r\n\r\n",
	}[proto])
	n, _ := conn.Read(make([]byte, 1))

	return n > 0
}

// Raft is for voters, the rest for members, and the door alone for others and for those of another history. A node
// without a domain lets Raft of all nodes in.
func TestEachProtocolIsOpenToThoseWhoMay(t *testing.T) {
	for name, c := range map[string]struct {
		who     spiffeid.ID
		history History
		alone   bool // whether the server has no domain
		open    []string
	}{
		"a voter":          {voter, History{1}, false, []string{ProtocolRaft, ProtocolWrite, ProtocolHTTP, protocolJoin}},
		"a reader":         {reader, History{1}, false, []string{ProtocolWrite, ProtocolHTTP, protocolJoin}},
		"a new voter":      {vouched, History{1}, false, []string{ProtocolRaft, protocolJoin}},
		"a former member":  {former, History{1}, false, []string{protocolJoin}},
		"another history":  {voter, History{2}, false, []string{protocolJoin}},
		"no history":       {voter, History{}, false, []string{protocolJoin}},
		"without a domain": {former, History{1}, true, []string{ProtocolRaft, protocolJoin}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t)
				there := m.join(server, "server", func(o *Options) {
					if c.alone {
						o.Known = func() []Member { return nil }
					}
				})
				there.Serve(http.NotFoundHandler(), http.NotFoundHandler())

				go greet(there.raft.Accept, ProtocolRaft)
				go greet(there.AcceptWrites, ProtocolWrite)

				here := m.join(c.who, "here", func(o *Options) {
					o.Known = func() []Member { return []Member{{server, "server"}} }
					o.Claim = func() Claim { return Claim{History: c.history, Voter: true} }
				})

				for _, proto := range []string{ProtocolRaft, ProtocolWrite, ProtocolHTTP, protocolJoin} {
					if got := lets(t, here, "server", proto); got != slices.Contains(c.open, proto) {
						t.Errorf("over %s it is let in: %t", proto, got)
					}
				}

				must(t, errors.Join(there.raft.Close(), there.Close()))
			})
		})
	}
}

// A member is found at its address or another one, whatever else answers there or does not, and no connection is left
// but the one to it.
func TestAMemberIsFoundWhereverItIs(t *testing.T) {
	for name, c := range map[string]struct {
		at     map[string]spiffeid.ID // zero where the node is silent
		others []string
		found  bool
	}{
		"at its address":         {map[string]spiffeid.ID{"reader": reader}, nil, true},
		"elsewhere":              {map[string]spiffeid.ID{"moved": reader}, []string{"reader", "moved"}, true},
		"at the third":           {map[string]spiffeid.ID{"third": reader}, []string{"moved", "third"}, true},
		"behind a silent node":   {map[string]spiffeid.ID{"reader": {}, "moved": reader}, []string{"moved"}, true},
		"behind another node":    {map[string]spiffeid.ID{"reader": voter, "moved": reader}, []string{"moved"}, true},
		"nowhere":                {nil, []string{"moved"}, false},
		"only another node":      {map[string]spiffeid.ID{"reader": voter}, nil, false},
		"only silence":           {map[string]spiffeid.ID{"reader": {}}, nil, false},
		"only silence, and none": {map[string]spiffeid.ID{"moved": {}}, []string{"moved"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t)
				here := m.join(voter, "here", func(o *Options) {
					o.Known = func() []Member { return []Member{{reader, "reader"}} }
					o.Others = func(spiffeid.ID) []string { return c.others }
				})

				for address, id := range c.at {
					if id.IsZero() {
						m.listeners[address] = newAcceptor(&net.TCPAddr{})
						continue
					}

					there := m.join(id, address, nil)
					there.Serve(http.NotFoundHandler(), http.NotFoundHandler())
				}

				conn, err := here.Connect(t.Context(), "reader", ProtocolWrite)
				if (err == nil) != c.found {
					t.Fatal(err)
				}

				if c.found {
					if id, ok := PeerOf(conn); id != reader || !ok {
						t.Errorf("it is connected to %s", id)
					}

					_ = conn.Close()
				}

				if n := len(here.conns); n != 0 {
					t.Errorf("%d connections are left", n)
				}

				if _, err := here.Connect(t.Context(), "stranger", ProtocolWrite); !errors.Is(err, ErrNotMember) {
					t.Errorf("an address of no member: %v", err)
				}
			})
		})
	}
}

// A pacedConn ends its client's part of the handshake at a time.
type pacedConn struct {
	net.Conn
	end    time.Time
	writes int
}

func (p *pacedConn) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	if p.writes++; p.writes == 2 {
		time.Sleep(time.Until(p.end))
	}

	return n, err
}

// Of two addresses that answer at the same time, one connection remains.
func TestTheSlowerOfTwoConnectionsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		for _, address := range []string{"reader", "moved"} {
			m.join(reader, address, nil).Serve(http.NotFoundHandler(), http.NotFoundHandler())
		}

		var end time.Time

		here := m.join(voter, "here", func(o *Options) {
			o.Others = func(spiffeid.ID) []string { return []string{"moved"} }
			o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := m.dial(ctx, address)
				return &pacedConn{Conn: conn, end: end}, err
			}
		})

		// Which of them is first, and by how much, is different each time.
		for range 200 {
			end = time.Now().Add(time.Second)
			conn, err := here.Connect(t.Context(), "reader", ProtocolWrite)
			must(t, err)

			if n := len(here.conns); n != 1 {
				t.Fatalf("%d connections are open", n)
			}

			_ = conn.Close()
		}
	})
}

// A node that asks to be let in has a time for it: the door is open to every node of the domain.
func TestARequestAtTheDoorHasATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, read := newMesh(t), make(chan time.Duration, 1)
		there, began := m.join(server, "server", nil), time.Now()
		there.Serve(http.NotFoundHandler(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			read <- time.Since(began)
		}))

		conn, err := m.join(former, "here", nil).dialGuest(t.Context(), "server")
		must(t, err)

		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: server\r\nContent-Length: 10\r\n\r\nslow")
		must(t, err)
		time.Sleep(time.Minute)

		select {
		case took := <-read:
			if took != HandshakeTimeout {
				t.Errorf("the request was read for %s, want %s", took, HandshakeTimeout)
			}
		default:
			t.Error("the request is read still")
		}

		_ = conn.Close()
	})
}

// A connection ends with the certificate of its other end, at both.
func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		there, here := m.join(reader, "reader", nil), m.join(voter, "voter", nil)
		there.Serve(http.NotFoundHandler(), http.NotFoundHandler())

		go greet(there.AcceptWrites, ProtocolWrite)

		for _, wait := range []time.Duration{50 * time.Minute, time.Hour} {
			_, err := here.Connect(t.Context(), "reader", ProtocolWrite)
			if err != nil && wait < time.Hour {
				t.Fatal(err)
			}

			time.Sleep(wait)
			synctest.Wait()

			left := 0
			if wait < time.Hour {
				left = 1
			}

			if len(here.conns) != left || len(there.conns) != left {
				t.Errorf("after %s, %d and %d connections are left, want %d", wait, len(here.conns), len(there.conns),
					left)
			}
		}
	})
}

// Raft gets the messages that are judged, with the member that sent them, and a snapshot to its end. It gets no answer
// that is refused: it would take over its term.
func TestRaftGetsWhatIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, entered, stop := newMesh(t), make(chan struct{}), make(chan struct{})
		close(entered)

		var refused, from, installing, heartbeat string

		transport := func(id spiffeid.ID, address string) RaftTransport {
			cluster := m.join(id, address, nil)
			cluster.Serve(http.NotFoundHandler(), http.NotFoundHandler())

			made := NewRaftTransport(RaftOptions{Cluster: cluster, Address: raft.ServerAddress(address),
				Timeout: 5 * time.Second, Log: hclog.NewNullLogger(), Entered: entered,
				Received: func(raft.ServerID) {}, Matched: func(raft.ServerID, uint64, uint64) {},
				Withhold: func(m *raft.AppendEntriesRequest) *raft.AppendEntriesRequest { return m },
				Judge: func(by spiffeid.ID, message any) error {
					if from = by.String(); fmt.Sprintf("%T", message) == refused {
						return errors.New("refused")
					}

					return nil
				},
				Installing: func(by spiffeid.ID) { installing = by.String() },
			})
			m.t.Cleanup(func() { must(t, made.Close()) })

			go made.Run(stop)

			return made
		}

		here, there := transport(voter, "voter"), transport(server, "server")
		there.SetHeartbeatHandler(func(rpc raft.RPC) {
			heartbeat = "handled"
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		})

		go func() {
			for {
				select {
				case rpc := <-there.Consumer():
					switch rpc.Command.(type) {
					case *raft.InstallSnapshotRequest:
						data, err := io.ReadAll(rpc.Reader)
						rpc.Respond(&raft.InstallSnapshotResponse{Success: string(data) == "snapshot"}, err)
					default:
						rpc.Respond(&raft.RequestVoteResponse{Term: 7, Granted: true}, nil)
					}
				case <-stop:
					return
				}
			}
		}()

		id := raft.ServerID(server.String())
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(voter.String()),
			Addr: []byte("voter")}
		vote := func() error {
			return here.RequestVote(id, "server", &raft.RequestVoteRequest{RPCHeader: header, Term: 7},
				&raft.RequestVoteResponse{})
		}
		must(t, vote())

		for _, refused = range []string{"*raft.RequestVoteRequest", "*raft.RequestVoteResponse"} {
			if vote() == nil {
				t.Errorf("a refused %s is taken", refused)
			}
		}

		install := func() (got raft.InstallSnapshotResponse, err error) {
			err = here.InstallSnapshot(id, "server", &raft.InstallSnapshotRequest{RPCHeader: header, Size: 8}, &got,
				strings.NewReader("snapshot"))

			return got, err
		}

		refused = "*raft.InstallSnapshotRequest"

		if _, err := install(); err == nil || installing != "" {
			t.Errorf("a refused snapshot is taken: %v", err)
		}

		refused = ""

		if got, err := install(); err != nil || !got.Success || installing != voter.String() || from != voter.String() {
			t.Errorf("a snapshot of %s by %s: %+v, %v", from, installing, got, err)
		}

		must(t, here.AppendEntries(id, "server", &raft.AppendEntriesRequest{RPCHeader: header, Term: 7},
			&raft.AppendEntriesResponse{}))

		if heartbeat == "" {
			t.Error("no heartbeat goes ahead of other messages")
		}

		close(stop)
	})
}

// A node without one SPIFFE ID, or without a protocol, gets in nowhere, even where all nodes may.
func TestANodeWithoutAnIdentityStaysOutside(t *testing.T) {
	one, err := url.Parse(voter.String())
	must(t, err)

	for name, c := range map[string]struct {
		uris   []*url.URL
		protos []string
	}{
		"without an identity": {nil, []string{ProtocolRaft}},
		"with two":            {[]*url.URL{one, one}, []string{ProtocolRaft}},
		"without a protocol":  {[]*url.URL{one}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMesh(t)
			there := m.join(server, "server", func(o *Options) {
				if c.protos != nil {
					o.Known = func() []Member { return nil }
				}

				o.Judge = func(spiffeid.ID, Claim) error { return nil }
			})
			there.Serve(http.NotFoundHandler(), http.NotFoundHandler())

			go greet(there.raft.Accept, ProtocolRaft)
			go greet(there.web.Accept, ProtocolHTTP)

			cert, key := m.sign(&x509.Certificate{URIs: c.uris,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			raw, err := m.dial(t.Context(), "server")
			must(t, err)

			conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: c.protos,
				Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}})
			if n, _ := conn.Read(make([]byte, 1)); n > 0 {
				t.Errorf("%s, it is let in", name)
			}

			_ = conn.Close()
			must(t, errors.Join(there.raft.Close(), there.Close()))
		})
	}
}

// A certificate that isn't accepted is told from a connection that fails, and one that isn't accepted any more ends its
// connection, at whichever end.
func TestACertificateIsJudgedAtBothEnds(t *testing.T) {
	m := newMesh(t)

	// A pipe has no room for an alert while the other end writes.
	sockets, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	defer func() { _ = sockets.Close() }()

	judging := func(distrusts *atomic.Bool) func(*Options) {
		verify := func(tls.ConnectionState) error {
			if distrusts.Load() {
				return ErrNotMember
			}

			return nil
		}

		return func(o *Options) {
			o.ServerTLS.VerifyConnection, o.ClientTLS.VerifyConnection = verify, verify
			o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := net.Dial("tcp", sockets.Addr().String())
				if err != nil {
					return nil, err
				}

				there, err := sockets.Accept()
				if err != nil {
					return nil, err
				}

				return conn, m.listeners[address].give(ctx, there)
			}
		}
	}

	var server, client atomic.Bool

	there, here := m.join(reader, "reader", judging(&server)), m.join(voter, "voter", judging(&client))
	there.Serve(http.NotFoundHandler(), http.NotFoundHandler())

	go greet(there.AcceptWrites, ProtocolWrite)

	for _, c := range []struct {
		end       *Cluster
		distrusts *atomic.Bool
	}{{there, &server}, {here, &client}} {
		conn, err := here.Connect(t.Context(), "reader", ProtocolWrite)
		must(t, err)

		_, err = io.ReadFull(conn, make([]byte, len(ProtocolWrite)))
		must(t, err)

		c.distrusts.Store(true)
		c.end.Evict()

		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection that isn't trusted reads %d bytes", n)
		}

		_ = conn.Close()
		_, err = here.Connect(t.Context(), "reader", ProtocolWrite)

		if refused := (*CertificateError)(nil); errors.As(err, &refused) != (c.end == here) {
			t.Errorf("the client distrusts the server: %t, and gets %v", c.end == here, err)
		}

		c.distrusts.Store(false)
	}
}
