package trust

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: TRUST-007
func TestIdentitiesAreComparedWhole(t *testing.T) {
	ada := identity(t, "spiffe://alpha.test/agent/ada")
	if ada == identity(t, "wimse://alpha.test/agent/ada") {
		t.Error("two schemes are equal")
	}

	if ada != directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada")) {
		t.Error("one identity is two")
	}

	for _, s := range []string{
		"SPIFFE://alpha.test/agent/ada", "Spiffe://alpha.test/agent/ada", "spiffe://Alpha.test/agent/ada",
		"spiffe://alpha.test/agent/%61da", "spiffe://alpha.test/agent/ada/", "spiffe://alpha.test//agent/ada",
		"spiffe://alpha.test/agent/./ada", "spiffe://alpha.test/agent/../ada", "spiffe://alpha.test:443/agent/ada",
		"spiffe://ada@alpha.test/agent/ada", "spiffe://alpha.test/agent/ada?x=1", "spiffe://alpha.test/agent/ada#x",
		"spiffe:/alpha.test/agent/ada", "spiffe:///agent/ada", "spiffe://alpha.test/agent/adá",
		" spiffe://alpha.test/agent/ada",
		"wimse://Alpha.test/agent/ada", "wimse://alpha.test/agent/ada/", "wimse://alpha.test/agent/%61da",
	} {
		if id, err := directory.ParseIdentity(s); err == nil {
			t.Errorf("%q is taken as %q", s, id)
		}
	}

	if other := identity(t, "spiffe://alpha.test/agent/Ada"); other == ada {
		t.Error("paths are compared without case")
	}
}

// Requirement: TRUST-007
func TestIsNode(t *testing.T) {
	for s, want := range map[string]bool{
		"spiffe://alpha.test/roster/node/1":   true,
		"spiffe://alpha.test/roster/node/a/b": true,
		"spiffe://beta.test/roster/node/1":    false,
		"spiffe://alpha.test/roster/node":     false,
		"spiffe://alpha.test/roster/nodes/1":  false,
		"spiffe://alpha.test/roster/Node/1":   false,
		"spiffe://alpha.test/x/roster/node/1": false,
		"spiffe://alpha.test":                 false,
	} {
		if got := IsNode(spiffeid.RequireFromString(s), alpha); got != want {
			t.Errorf("%s: %v", s, got)
		}
	}

	if IsNode(spiffeid.ID{}, spiffeid.TrustDomain{}) {
		t.Error("nobody is a node of nowhere")
	}
}

// Files are swapped whole, and the old SVID stays when the new one can't be used. What
// else is written beside them, such as a log, delays that by little.
func TestSourceFollowsFiles(t *testing.T) {
	ca, err := NewCA(alpha, time.Now())
	must(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "node.pem"), filepath.Join(dir, "node-key.pem")
	first, second := issue(t, ca, "/roster/node/1"), issue(t, ca, "/roster/node/1")
	must(t, WriteSVID(first, cert, key))

	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v (%v)", info.Mode(), err)
	}

	source, err := OpenFiles(cert, key)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	alarms := &counter{}

	var run sync.WaitGroup
	run.Go(func() {
		source.Run(ctx, slog.New(slog.NewTextHandler(alarms, &slog.HandlerOptions{Level: slog.LevelError})))
	})
	defer run.Wait()
	defer cancel()

	must(t, os.WriteFile(cert, []byte("corrupt"), 0o644))
	eventually(t, "an alarm", func() bool { return alarms.count() > 0 })

	if !source.SVID().Certificates[0].Equal(first.Certificates[0]) {
		t.Fatal("a corrupt file replaced the SVID")
	}

	changed := source.Changed()
	must(t, WriteSVID(second, cert, key))

	late := time.After(20 * time.Second)
	for taken := false; !taken; {
		must(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o600))

		select {
		case <-changed:
			taken = true
		case <-time.After(settle / 10):
		case <-late:
			t.Fatal("the new SVID was not taken")
		}
	}

	if !source.SVID().Certificates[0].Equal(second.Certificates[0]) {
		t.Error("another SVID than the file's is in use")
	}

	for what, svid := range map[string]func() error{
		"another identity's": func() error { return WriteSVID(issue(t, ca, "/roster/node/2"), cert, key) },
		"an expired one": func() error {
			return WriteSVID(ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
				c.NotAfter = time.Now().Add(-time.Second)
			}), cert, key)
		},
	} {
		must(t, svid())

		if taken, _, err := source.reload(); err == nil || taken || source.Trouble() == nil {
			t.Errorf("%s SVID is taken", what)
		}
	}

	NewSource(first).Run(ctx, slog.Default()) // a fixed source's returns at once
}

// An expired SVID of files is reported with the reason for which the files brought no other.
func TestAnExpiredSVIDNamesWhyThereIsNoOther(t *testing.T) {
	ca, err := NewCA(alpha, time.Now())
	must(t, err)

	dir := t.TempDir()
	cert, key := filepath.Join(dir, "node.pem"), filepath.Join(dir, "node-key.pem")
	must(t, WriteSVID(ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Second)
	}), cert, key))

	source, err := OpenFiles(cert, key)
	must(t, err)
	must(t, WriteSVID(issue(t, ca, "/roster/node/2"), cert, key))

	if _, _, err := source.reload(); err == nil {
		t.Fatal("another identity's SVID is taken")
	}

	if err := source.Err(); !errors.Is(err, errOtherID) || !strings.Contains(err.Error(), "SVID expired at") {
		t.Errorf("the source says %v", err)
	}
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++

	return len(b), nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for end := time.After(20 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestCAIsKept(t *testing.T) {
	ca, err := NewCA(alpha, time.Now())
	must(t, err)
	again, err := LoadCA(ca.PEM())
	must(t, err)
	bundles := NewBundles()
	must(t, bundles.SetX509(alpha, ca.Bundle().X509Authorities()))

	if _, err := verifyChain(issue(t, again, "/agent/ada").Certificates, bundles, forClient, time.Now()); err != nil {
		t.Error(err)
	}

	cert, _ := ca.PEM()
	other, err := NewCA(alpha, time.Now())
	must(t, err)

	_, key := other.PEM()
	if _, err := LoadCA(cert, key); err == nil {
		t.Error("another CA's key is taken")
	}
}

func TestBundles(t *testing.T) {
	a, b, bundles := twoDomains(t)
	good, err := bundles.JWKS(alpha)
	must(t, err)
	agent := issue(t, a, "/agent/ada").Certificates[0]

	jwks := func(certs ...*x509.Certificate) []byte { return jwksOf(t, alpha, certs...) }
	for name, text := range map[string][]byte{
		"no keys":               []byte(`{"keys":[]}`),
		"not JSON":              []byte("{"),
		"a name twice":          []byte(`{"keys":[],` + string(good[1:])),
		"something behind":      append(append([]byte{}, good...), "{}"...),
		"a leaf":                jwks(agent),
		"another domain's":      jwks(b.cert),
		"one of another domain": jwks(a.cert, b.cert),
		"too much":              append(append([]byte{}, good...), strings.Repeat(" ", MaxBundle)...),
		"an error page":         []byte(`{"error":"service unavailable"}`),
		"a key without its cert": []byte(`{"keys":[{"use":"x509-svid","kty":"OKP","crv":"Ed25519",` +
			`"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`),
	} {
		if err := bundles.Set(alpha, text); err == nil {
			t.Errorf("%s: taken", name)
		}
	}

	if kept, err := bundles.JWKS(alpha); err != nil || string(kept) != string(good) {
		t.Error("the last good bundle is not kept")
	}

	certPEM, _ := a.PEM()
	if _, err := ParseBundle(alpha, append(bytes.Clone(certPEM), strings.Repeat("\n", MaxBundle)...)); err == nil {
		t.Error("too many certificates are taken")
	}

	unnamed := *a.cert
	unnamed.URIs = nil
	authority, err := certify(&unnamed, &unnamed, a.cert.PublicKey, a.key)
	must(t, err)

	if _, err := ParseBundle(alpha, jwks(authority)); err != nil {
		t.Errorf("an authority without an ID: %v", err)
	}

	before := bundles.generation(alpha)
	must(t, bundles.Set(alpha, good))

	if bundles.generation(alpha) != before {
		t.Error("the same bundle again is a change")
	}

	file := filepath.Join(t.TempDir(), "bundle.pem")
	for _, text := range [][]byte{certPEM, good} {
		must(t, os.WriteFile(file, text, 0o600))
		fresh := NewBundles()
		must(t, fresh.LoadFile(alpha, file))

		if !fresh.Has(alpha) || fresh.Has(beta) {
			t.Error("the file was not read")
		}

		if err := fresh.LoadFile(beta, file); err == nil {
			t.Error("alpha's authorities are taken for beta's")
		}
	}

	// What the Workload API says goes before, for as long as it says it.
	must(t, bundles.Federate(beta, jwksOf(t, beta, b.cert)))
	must(t, bundles.Federate(alpha, jwks(authority)))

	if federated, err := bundles.JWKS(alpha); err != nil || !bytes.Equal(federated, jwks(authority)) {
		t.Errorf("another bundle goes before the Workload API's: %v", err)
	}

	changed := bundles.Changed()

	bundles.Unfederate(alpha)

	select {
	case <-changed:
	default:
		t.Error("those who hold connections are not told that the Workload API took a bundle back")
	}

	if kept, err := bundles.JWKS(alpha); err != nil || !bytes.Equal(kept, good) {
		t.Errorf("what the Workload API took back is believed: %v", err)
	}

	bundles.Remove(alpha)

	if _, err := bundles.JWKS(alpha); err == nil || bundles.Has(alpha) {
		t.Error("a removed bundle is there")
	}

	if bundles.Remove(beta); !bundles.Has(beta) {
		t.Error("the Workload API's bundle is removed with the operator's")
	}
}

// A bundle is in force for as long as its last authority that is: one that has yet to begin extends nothing.
func TestABundleEndsWithTheLastAuthorityInForce(t *testing.T) {
	now := time.Now()
	present, err := NewCA(alpha, now)
	must(t, err)
	coming, err := NewCA(alpha, now.Add(48*time.Hour))
	must(t, err)

	bundles := NewBundles()
	must(t, bundles.SetX509(alpha, []*x509.Certificate{present.cert, coming.cert}))

	for at, want := range map[time.Time]time.Time{
		now: present.cert.NotAfter, now.Add(72 * time.Hour): coming.cert.NotAfter, now.Add(-240 * time.Hour): {},
	} {
		if got := bundles.Expiry(alpha, at); !got.Equal(want) {
			t.Errorf("at %s it ends at %s, want %s", at, got, want)
		}
	}

	if got := bundles.Expiry(beta, now); !got.IsZero() {
		t.Errorf("a bundle that is not there ends at %s", got)
	}
}

func jwksOf(t testing.TB, td spiffeid.TrustDomain, certs ...*x509.Certificate) []byte {
	t.Helper()
	text, err := spiffebundle.FromX509Authorities(td, certs).Marshal()
	must(t, err)

	return text
}

// What people compare at both ends of a peering is the SHA-256 of each authority's public
// key: the same in whatever order and form, and another for others.
func TestFingerprints(t *testing.T) {
	o, other := newOrigin(t, alpha), newOrigin(t, alpha)
	of := func(text []byte) []string {
		prints, err := Fingerprints(alpha, text)
		must(t, err)

		return prints
	}
	one, two := o.ca.cert, other.ca.cert
	pem, _ := o.ca.PEM()

	der, err := x509.MarshalPKIXPublicKey(one.PublicKey)
	must(t, err)

	sum := sha256.Sum256(der)

	alone := of(jwksOf(t, alpha, one))
	if len(alone) != 1 || alone[0] != hex.EncodeToString(sum[:]) || !slices.Equal(of(pem), alone) {
		t.Errorf("%q is %q in PEM", alone, of(pem))
	}

	both := of(jwksOf(t, alpha, one, two))
	if len(both) != 2 || !slices.Equal(of(jwksOf(t, alpha, two, one, two)), both) {
		t.Error("they depend on the order, or on repetitions")
	}

	if slices.Equal(of(jwksOf(t, alpha, two)), alone) {
		t.Error("another authority has the same")
	}

	if _, err := Fingerprints(beta, jwksOf(t, alpha, one)); err == nil {
		t.Error("alpha's authorities have one as beta's")
	}
}
