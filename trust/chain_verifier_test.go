package trust

import (
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/limit/certs"
)

// What is remembered of a certificate is what would be found anew: until it and its
// authority end, not before they begin, and by the bundle of now.
//
// Requirement: TRUST-002, TRUST-003
func TestWhatIsRememberedIsWhatWouldBeFound(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	ca, err := NewCA(alpha, now)
	must(t, err)
	root := ca.Bundle().X509Authorities()[0]
	bundles := NewBundles()
	must(t, bundles.SetX509(alpha, ca.Bundle().X509Authorities()))
	short, err := ca.Issue("/node/1", time.Hour, now)
	must(t, err)
	long, err := ca.Issue("/node/2", 2*root.NotAfter.Sub(now), now)
	must(t, err)

	j := newChainVerifier(bundles, forClient)
	for _, at := range []time.Time{
		now, now.Add(time.Minute), now.Add(59 * time.Minute), now.Add(61 * time.Minute), now,
		short.Certificates[0].NotBefore.Add(-time.Second),
		root.NotAfter.Add(-time.Second), root.NotAfter.Add(time.Second), root.NotBefore.Add(-time.Second), now,
	} {
		for _, svid := range []*x509svid.SVID{short, long} {
			id, err := j.Verify(svid.Certificates, at)

			anew, fresh := verifyChain(svid.Certificates, bundles, forClient, at)
			if (err == nil) != (fresh == nil) || id != anew {
				t.Errorf("%v later %s is remembered as %v (%v), and would be found to be %v (%v)", at.Sub(now),
					svid.ID, id, err, anew, fresh)
			}
		}
	}

	if _, ok := j.valid[short.Certificates[0]]; !ok {
		t.Error("nothing was remembered")
	}

	next, err := NewCA(alpha, now)
	must(t, err)
	must(t, bundles.SetX509(alpha, next.Bundle().X509Authorities()))

	if _, err := j.Verify(short.Certificates, now); err == nil {
		t.Error("what an earlier bundle certified is still taken")
	}

	if _, err := j.Verify(nil, now); err == nil {
		t.Error("no certificate is taken")
	}
}

// A chain beyond the bounds is refused for that, though its leaf is certified.
//
// Requirement: SEC-001
func TestAnExpensiveChainIsRefused(t *testing.T) {
	now := time.Now()
	ca, err := NewCA(alpha, now)
	must(t, err)

	bundles := NewBundles()
	must(t, bundles.SetX509(alpha, ca.Bundle().X509Authorities()))
	svid, err := ca.Issue("/agent/ada", time.Hour, now)
	must(t, err)

	for length, want := range map[int]Reason{certs.MaxChain: "", certs.MaxChain + 1: ReasonExpensive} {
		_, err := verifyChain(slices.Repeat(svid.Certificates[:1], length), bundles, forClient, now)
		if got := reasonOf(err); (err != nil) != (want != "") || err != nil && got != want {
			t.Errorf("a chain of %d certificates: %s (%v), want %q", length, got, err, want)
		}
	}
}
