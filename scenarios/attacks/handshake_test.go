package attacks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// Bars of a handshake with a hostile chain.
const (
	handshakeCPU = 20 * time.Millisecond // of the node, for each
	handshakes   = 25                    // of each kind, so that the clock's ticks of 10 ms say something
)

// cpuOf returns how much processor time a node has used.
func (m *runningMesh) cpuOf(n dev.Node) time.Duration {
	m.t.Helper()

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID))
	must(m.t, err)

	// The second field, in parentheses, may have blanks; utime and stime are 14 and 15.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))

	var ticks int64

	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(field, 10, 64)
		must(m.t, err)

		ticks += count
	}

	return time.Duration(ticks) * 10 * time.Millisecond
}

// expensiveChain returns a certificate of an agent of alpha.test that nothing certifies, and behind
// its leaf as many CAs with keys of a curve: all of one name, so that each may have signed each
// other.
func expensiveChain(t *testing.T, curve elliptic.Curve, cas int) *tls.Certificate {
	t.Helper()

	issue := func(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) []byte {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		template.NotAfter = time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
		must(t, err)

		return der
	}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		must(t, err)

		return key
	}

	by := newKey() // whose certificate isn't sent
	own := newKey()
	id := &url.URL{Scheme: "spiffe", Host: "alpha.test", Path: "/agent/ada"}
	made := &tls.Certificate{PrivateKey: own, Certificate: [][]byte{issue(&x509.Certificate{
		URIs: []*url.URL{id}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, own.Public(), by)}}

	for range cas {
		key := newKey()
		made.Certificate = append(made.Certificate, issue(ca, ca, key.Public(), by))
	}

	return made
}

// A handshake costs a node little, whatever chain its client shows: many certificates, many
// paths through them, keys that are slow to verify by. None of them is let in (finding 30).
//
// Requirement: SEC-001
func TestAHandshakeCostsLittleWhateverTheChain(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]

	for what, hostile := range map[string]*tls.Certificate{
		"a hundred CAs of one name":   expensiveChain(t, elliptic.P256(), 100),
		"a hundred CAs by large keys": expensiveChain(t, elliptic.P521(), 100),
		"the longest chain":           expensiveChain(t, elliptic.P256(), 700), // of 256 KiB, crypto/tls's bound
		"seven CAs by large keys":     expensiveChain(t, elliptic.P521(), 7),
	} {
		m.refusesIn(handshakeCPU, what, node.API, hostile)
	}
}

// refusesIn has a server refuse a client's certificate again and again, and judges what that
// costs the node.
func (m *runningMesh) refusesIn(bar time.Duration, what, server string, certificate *tls.Certificate) {
	m.t.Helper()

	target, err := url.Parse(server)
	must(m.t, err)

	node := m.Domains[0].Nodes[0]
	before := m.cpuOf(node)

	for range handshakes {
		conn, err := tls.Dial("tcp", target.Host, &tls.Config{
			InsecureSkipVerify: true, // the attacker doesn't care whom it attacks
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return certificate, nil
			},
		})
		must(m.t, err)
		must(m.t, conn.SetDeadline(time.Now().Add(commandTimeout)))

		// In TLS 1.3 a client knows only by the first answer whether it was let in.
		if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			m.t.Errorf("%s: the connection stays: %v", what, err)
		}

		_ = conn.Close()
	}

	each := (m.cpuOf(node) - before) / handshakes
	m.t.Logf("%s: %s of a processor for each handshake", what, each)

	if each > bar {
		m.t.Errorf("%s: a handshake takes %s of the node's processor, at most %s", what, each, bar)
	}
}
