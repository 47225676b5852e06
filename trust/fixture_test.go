package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
)

// An origin is a trust domain of one node with real certificates.
type origin struct {
	td   spiffeid.TrustDomain
	ca   *CA
	svid *x509svid.SVID
	key  *Key
	doc  *signed.KeyDocument
	ring *Keyring
}

func newOrigin(t testing.TB, td spiffeid.TrustDomain) *origin {
	t.Helper()
	now := time.Now()
	ca, err := NewCA(td, now)
	must(t, err)
	svid, err := ca.Issue("/roster/node/1", time.Hour, now)
	must(t, err)
	key, err := OpenKey(t.TempDir())
	must(t, err)
	o := &origin{td: td, ca: ca, svid: svid, key: key, ring: NewKeyring(td, key, NewBundles())}
	o.issue(t, 1, o.signingKey(t))

	return o
}

// signingKey is the node's key, attested now.
func (o *origin) signingKey(t testing.TB) signed.SigningKey {
	t.Helper()
	attestation, err := o.key.Attest(o.svid, time.Now())
	must(t, err)

	return signed.SigningKey{Public: o.key.Public(), Node: o.svid.ID, Attestations: []string{attestation}}
}

// issue makes the next key document.
func (o *origin) issue(t testing.TB, seq uint64, keys ...signed.SigningKey) {
	t.Helper()
	o.doc = &signed.KeyDocument{Issuer: o.td, Epoch: 1, Seq: seq, Keys: keys,
		Expires: time.Now().Unix() + signed.KeyDocumentLifetime, Mesh: []spiffeid.TrustDomain{beta}}
	o.ring.SetOwn(o.doc)
}

// jws is the key document as the node serves it.
func (o *origin) jws(t testing.TB) string {
	t.Helper()

	_, jws, ok := o.ring.Keys(o.td)
	if !ok {
		t.Fatal("no key document")
	}

	return jws
}

// signKeys signs any key document by the node's key.
func (o *origin) signKeys(t testing.TB, doc *signed.KeyDocument) string {
	t.Helper()
	jws, err := o.ring.Sign(signed.TypeKeys, doc.Payload())
	must(t, err)

	return jws
}

// reader is a keyring of another domain that believes the origins' bundles.
func reader(t testing.TB, origins ...*origin) (*Keyring, *Bundles) {
	t.Helper()

	bundles := NewBundles()
	for _, o := range origins {
		must(t, bundles.SetX509(o.td, o.ca.Bundle().X509Authorities()))
	}

	key, err := OpenKey(t.TempDir())
	must(t, err)

	return NewKeyring(spiffeid.RequireTrustDomainFromString("reader.test"), key, bundles), bundles
}

// issueWith makes an SVID that is out of the ordinary.
func (c *CA) issueWith(t testing.TB, path string, change func(*x509.Certificate)) *x509svid.SVID {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	return c.issueFor(t, path, key, change)
}

func (c *CA) issueFor(t testing.TB, path string, key crypto.Signer, change func(*x509.Certificate)) *x509svid.SVID {
	t.Helper()
	id, err := spiffeid.FromPath(c.td, path)
	must(t, err)

	template := leafTemplate(id, loopback, time.Now(), time.Hour)
	if change != nil {
		change(template)
	}

	leaf, err := certify(template, c.cert, key.Public(), c.key)
	must(t, err)

	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{leaf}, PrivateKey: key}
}

func identity(t testing.TB, uri string) directory.Identity {
	t.Helper()

	id, err := directory.ParseIdentity(uri)
	must(t, err)

	return id
}

var must = directorytest.Must
