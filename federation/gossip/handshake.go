package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A secured is a connection whose ends have authenticated and exchanged their addresses.
type secured struct {
	*tls.Conn
	raw     net.Conn
	id      spiffeid.ID
	address string       // the address at which the other end asks to be dialled
	expires time.Time    // expiry of the other end's certificate
	judge   func() error // whether that certificate would be accepted now
	traffic func(td spiffeid.TrustDomain, in, out int)
}

// Read reads and counts the bytes read.
func (s *secured) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.count(n, 0)

	return n, err
}

// Write writes and counts the bytes written.
func (s *secured) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.count(0, n)

	return n, err
}

func (s *secured) count(in, out int) {
	if s.traffic != nil {
		s.traffic(s.id.TrustDomain(), in, out)
	}
}

// track registers raw to be closed by Shutdown. It closes raw and returns false if the
// transport is closed.
func (t *transport) track(raw net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		_ = raw.Close()
		return false
	}

	t.open[raw] = struct{}{}

	return true
}

// drop closes a tracked connection. It doesn't wait for the other end.
func (t *transport) drop(raw net.Conn) {
	t.mu.Lock()
	delete(t.open, raw)
	t.mu.Unlock()
	_ = raw.Close()
}

// dial connects to address for that purpose, and returns once the other end has accepted our
// certificate. want is the node that must answer; zero accepts any allowed node.
func (t *transport) dial(ctx context.Context, address string, want spiffeid.ID, purpose byte) (*secured, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()

	raw, err := t.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}

	if !t.track(raw) {
		return nil, errClosed
	}

	secured, err := t.greet(ctx, raw, want, purpose)
	if err != nil {
		t.drop(raw)
		return nil, fmt.Errorf("%s: %w", address, err)
	}

	if want.IsZero() {
		// This node is remembered too, so that a seed that leads back to it isn't joined again.
		t.remember(address, secured.id)
	}

	if secured.id == t.cfg.Node {
		t.drop(raw)
		return nil, fmt.Errorf("%s: that is this node", address)
	}

	if err := t.meet(secured); err != nil {
		t.drop(raw)
		return nil, err
	}

	return secured, nil
}

func (t *transport) greet(ctx context.Context, raw net.Conn, want spiffeid.ID, purpose byte) (*secured, error) {
	secured, err := t.prove(ctx, raw, tls.Client(raw, t.client), t.client.VerifyConnection)
	if err != nil {
		return nil, err
	}

	if !want.IsZero() && secured.id != want {
		t.cfg.Refused("name")
		return nil, fmt.Errorf("%w: %s", errOtherNode, secured.id)
	}

	if _, err := secured.Write(append([]byte{purpose}, hello(t.cfg.Advertise)...)); err != nil {
		return nil, err
	}

	if secured.address, err = readHello(secured); err != nil {
		return nil, err
	}

	return secured, secured.SetDeadline(time.Time{})
}

// prove performs the TLS handshake and reads the only SPIFFE ID from the verified
// certificate, which judge has accepted. The connection has ctx's deadline until the caller
// resets it.
func (t *transport) prove(ctx context.Context, raw net.Conn, conn *tls.Conn,
	judge func(tls.ConnectionState) error) (*secured, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}

	if err := conn.HandshakeContext(ctx); err != nil {
		t.cfg.Refused("handshake")
		return nil, err
	}

	state := conn.ConnectionState()
	if state.NegotiatedProtocol != Protocol ||
		len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].URIs) != 1 {
		t.cfg.Refused("identity")
		return nil, errNoIdentity
	}

	leaf := state.PeerCertificates[0]

	id, err := spiffeid.FromURI(leaf.URIs[0])
	if err != nil {
		t.cfg.Refused("identity")
		return nil, fmt.Errorf("%w: %w", errNoIdentity, err)
	}

	if !t.cfg.Allow(id) {
		t.cfg.Refused("not_allowed")
		return nil, fmt.Errorf("%s: %w", id, errNotAllowed)
	}

	if s, ok := raw.(interface{ HandshakeDone(*tls.ConnectionState) }); ok {
		s.HandshakeDone(&state)
	}

	return &secured{Conn: conn, raw: raw, id: id, expires: leaf.NotAfter, traffic: t.cfg.Traffic,
		judge: func() error { return judge(state) }}, nil
}

// hello frames the address at which to dial this node: one byte of length, and host:port.
// Bytes after a zero byte are for later releases.
func hello(address string) []byte {
	return append([]byte{byte(len(address))}, address...)
}

func readHello(r io.Reader) (string, error) {
	var size [1]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return "", err
	}

	said := make([]byte, size[0])
	if _, err := io.ReadFull(r, said); err != nil {
		return "", err
	}

	address, _, _ := bytes.Cut(said, []byte{0})

	return string(address), checkAddress(string(address))
}

// checkAddress accepts a host:port that can be dialled; the host is an IP address or a name.
// It refuses a slash, at which memberlist's Join would split the address.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotAnAddress, err)
	}

	n, err := strconv.ParseUint(port, 10, 16)
	ip, _ := netip.ParseAddr(host)

	odd := func(r rune) bool { return r <= ' ' || r == '/' || r >= 0x7f }
	if err != nil || n == 0 || host == "" || ip.IsUnspecified() ||
		len(address) > maxAddress || strings.ContainsFunc(address, odd) {
		return errNotAnAddress
	}

	return nil
}
