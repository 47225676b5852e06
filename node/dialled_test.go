package node

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// dialNode dials a node of alpha.test that presents an SVID of ca, as bundles judge it, and returns the
// name that the node got from the client. accepted is called once the client has judged the node.
func dialNode(t *testing.T, dialled *dialledConns, bundles *trust.Bundles, ca *trust.CA, accepted func()) (
	name string, err error) {
	t.Helper()

	svid, err := ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(t, err)

	td := spiffeid.RequireTrustDomainFromString("alpha.test")

	// The node goes on to trust the client, so that whatever refuses the connection is the client.
	trusted := trust.NewBundles()
	must(t, trusted.SetX509(td, ca.Bundle().X509Authorities()))

	source := trust.NewSource(svid)
	server := trust.ServerTLS(source, trusted, nil)
	clientEnd, serverEnd := net.Pipe()
	served := make(chan struct{})

	go func() {
		defer close(served)
		defer serverEnd.Close()

		conn := tls.Server(serverEnd, server)
		if conn.HandshakeContext(t.Context()) == nil {
			name = conn.ConnectionState().ServerName
		}

		_, _ = conn.Read(make([]byte, 1)) // until the client ends it
	}()

	config := trust.ClientTLS(source, bundles, AuthorizeNodesOf(td))
	verify := config.VerifyConnection

	var first sync.Once

	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state)
		first.Do(accepted)

		return err
	}

	conn, err := dialled.handshake(context.Background(), clientEnd, config, "ad1.alpha.test")
	if err == nil {
		err = conn.Close()
	}

	<-served

	return name, err
}

// A node that dials another names the host, by which a proxy may choose where the connection goes, and
// forgets the connection once it is closed. One that was certified by an authority which is dropped
// between the handshake and the end of the connections by it is not used.
//
// Requirement: TRUST-002
func TestADialledNodeIsNamedAndJudgedAgain(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("alpha.test")

	dropped, err := trust.NewCA(td, time.Now())
	must(t, err)

	kept, err := trust.NewCA(td, time.Now())
	must(t, err)

	bundles := trust.NewBundles()
	must(t, bundles.SetX509(td, dropped.Bundle().X509Authorities()))

	var dialled dialledConns

	name, err := dialNode(t, &dialled, bundles, dropped, func() {})
	if err != nil || name != "ad1.alpha.test" {
		t.Errorf("the node was dialled as %q: %v", name, err)
	}

	_, err = dialNode(t, &dialled, bundles, dropped, func() {
		if err := bundles.SetX509(td, kept.Bundle().X509Authorities()); err != nil {
			t.Error(err)
		}

		dialled.closeInvalid() // which can't know the connection yet
	})
	if err == nil {
		t.Error("a connection by a dropped authority is used")
	}

	if open := len(dialled.byConn); open > 0 {
		t.Errorf("%d closed connections are remembered", open)
	}
}
