package trust

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
)

// NodePath is the path prefix under which a domain's nodes have their IDs.
const NodePath = directory.NodePath

// IsGateway reports whether id is the ID of a gateway, of whatever domain: a client of agents
// that no listener of a directory takes for a node or an operator.
func IsGateway(id spiffeid.ID) bool { return strings.HasPrefix(id.Path(), directory.GatewayPath) }

// IsNode reports whether id is the ID of a node of the trust domain td: its path
// lies below NodePath, compared byte by byte.
func IsNode(id spiffeid.ID, td spiffeid.TrustDomain) bool {
	return !td.IsZero() && id.MemberOf(td) && strings.HasPrefix(id.Path(), NodePath)
}

// A Source holds this node's X.509-SVID and swaps it whole. It is safe for
// concurrent use.
type Source struct {
	certFile, keyFile string       // empty for a source that is not of files
	api               *WorkloadAPI // which swaps it; nil for a source of files, or a fixed one
	bundleFile        string       // of the domain's bundle, in bundles; empty if Run does not keep it
	bundles           *Bundles

	mu      sync.RWMutex // guards the rest
	svid    *x509svid.SVID
	cert    *tls.Certificate // of svid
	changed chan struct{}
	trouble error // of the last look at the files
}

// NewSource returns a source of that SVID, fixed until Set.
func NewSource(svid *x509svid.SVID) *Source {
	s := &Source{changed: make(chan struct{})}
	s.Set(svid)

	return s
}

// OpenFiles returns a source of the SVID in two PEM files: the chain, leaf
// first, and its private key (PKCS#8). Run watches them.
func OpenFiles(cert, key string) (*Source, error) {
	svid, err := x509svid.Load(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the node's SVID: %w", err)
	}

	s := NewSource(svid)
	s.certFile, s.keyFile = cert, key

	return s, nil
}

// SVID returns the current SVID, which must not be modified.
func (s *Source) SVID() *x509svid.SVID {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.svid
}

// Set replaces the current SVID by svid and notifies those that wait on Changed. Open
// connections keep their certificate.
func (s *Source) Set(svid *x509svid.SVID) {
	cert := &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
	for _, c := range svid.Certificates {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.svid, s.cert = svid, cert
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next swap.
func (s *Source) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.changed
}

// Certificate returns the current SVID as a certificate for TLS connections.
func (s *Source) Certificate() *tls.Certificate {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.cert
}

var (
	errOtherID = errors.New("the files hold the SVID of another identity")
	errSpent   = errors.New("the files hold an expired SVID")
)
