package consensus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/transport"
)

// brief returns a certificate of id that lives for two minutes from now on.
func (c *ca) brief(t testing.TB, id spiffeid.ID) *tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	u, _ := url.Parse(id.String())

	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{u}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(2 * time.Minute),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, c.cert, key.Public(), c.key)
	if err != nil {
		t.Error(err)
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// conns returns the connections that a member has by now.
func (d *domain) conns(i int) map[net.Conn]spiffeid.ID {
	return d.nodes[i].messenger.cluster.Connections()
}

// What members talk over ends with the certificates that it was made with, is made again
// with those that were renewed, and no write is lost by it.
//
// Requirement: TRUST-002
func TestConnectionsOfMembersEndWithTheirCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d *domain
		certificates := map[string]*atomic.Pointer[tls.Certificate]{}
		authority := newCA(t)
		renew := func(id spiffeid.ID) { certificates[id.String()].Store(authority.brief(t, id)) }
		d = newDomain(t, 3, func(c *Config) {
			quiet(c)

			now := &atomic.Pointer[tls.Certificate]{}
			certificates[c.Node.String()] = now
			renew(c.Node)
			pool := x509.NewCertPool()
			pool.AddCert(authority.cert)
			c.ServerTLS.Certificates, c.ServerTLS.ClientCAs = nil, pool
			c.ServerTLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return now.Load(), nil }
			c.ClientTLS.Certificates, c.ClientTLS.RootCAs = nil, pool
			c.ClientTLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return now.Load(), nil
			}
		})
		d.ready()
		leader, _ := d.leader()

		var before [3]map[net.Conn]spiffeid.ID
		for i := range d.nodes {
			before[i] = d.conns(i)
			if len(before[i]) == 0 {
				t.Fatalf("member %d has no connections", i)
			}
		}

		// Certificates end at whole seconds, and a connection that ends takes the requests on it with it. So none
		// is made at that instant.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(3 * time.Second / 2)))

		for second := range 180 {
			if second%60 == 59 {
				for _, m := range d.members {
					renew(m.ID)
				}
			}

			d.register(second%3, fmt.Sprint("agent-", second%5), 600)

			time.Sleep(time.Second)
		}

		for i := range d.nodes {
			for at, peer := range d.conns(i) {
				if _, was := before[i][at]; was {
					t.Errorf("member %d still talks to %s over a connection whose certificates have ended", i, peer)
				}
			}

			if len(d.conns(i)) == 0 {
				t.Errorf("member %d has no connections any more", i)
			}
		}

		if now, _ := d.leader(); now != leader {
			t.Errorf("another member leads")
		}
	})
}

// A member whose certificate does not hold any more, since its authority is believed no
// longer, is talked to no longer either, over connections that are there.
//
// Requirement: TRUST-003
func TestConnectionsEndWithTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		last := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/n2")
		judge := func(cs tls.ConnectionState) error {
			if id, _ := transport.PeerID(&cs); over.Load() && id == last {
				return errors.New("nobody believes its authority any more")
			}

			return nil
		}
		d := newDomain(t, 3, func(c *Config) {
			c.ServerTLS.VerifyConnection, c.ClientTLS.VerifyConnection = judge, judge
		})
		d.ready()
		over.Store(true)
		time.Sleep(5 * time.Second)

		for i := range 2 {
			for _, peer := range d.conns(i) {
				if peer == last {
					t.Errorf("member %d still talks to one that nobody believes", i)
				}
			}
		}

		d.register(0, "translator", 600)
	})
}
