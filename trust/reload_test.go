package trust

import (
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/durable"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// A domain's CA is rotated by its files: the bundle is swapped whole, with the SVID or
// without, and neither in such a way that the one does not certify the other.
//
// Requirement: TRUST-002
func TestBundleFollowsItsFile(t *testing.T) {
	old, err := NewCA(alpha, time.Now())
	must(t, err)
	next, err := NewCA(alpha, time.Now())
	must(t, err)
	dir := t.TempDir()
	cert, key, bundle := filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key"), filepath.Join(dir,
		"bundle.pem")
	write := func(cas ...*CA) {
		t.Helper()

		var text []byte
		for _, ca := range cas {
			pem, _ := ca.PEM()
			text = append(text, pem...)
		}

		must(t, durable.WriteFile(bundle, text, 0o600))
	}
	show := func(ca *CA) *x509svid.SVID {
		t.Helper()
		svid := issue(t, ca, "/roster/node/1")
		must(t, WriteSVID(svid, cert, key))

		return svid
	}
	first := show(old)
	write(old)
	bundles := NewBundles()
	source, err := OpenFiles(cert, key)
	must(t, err)
	must(t, source.Follow(bundles, bundle))
	believes := func(ca *CA) bool {
		_, err := verifyChain(issue(t, ca, "/agent/ada").Certificates, bundles, forClient, time.Now())
		return err == nil
	}
	step := func(what string, wantSVID, wantBundle, wantErr bool) {
		t.Helper()

		svid, bundle, err := source.reload()
		if svid != wantSVID || bundle != wantBundle || (err != nil) != wantErr || (source.Trouble() != nil) != wantErr {
			t.Fatalf("%s: a new SVID %v, a new bundle %v, %v", what, svid, bundle, err)
		}
	}

	step("nothing new", false, false, false)

	for what, text := range map[string]string{"garbage": "garbage", "nothing": "", "an empty set": `{"keys":[]}`} {
		must(t, os.WriteFile(bundle, []byte(text), 0o600))
		step(what, false, false, true)
	}

	write(next)
	step("a bundle that does not certify the SVID", false, false, true)
	write(old)
	show(next)
	step("an SVID that the bundle does not certify", false, false, true)

	if !believes(old) || believes(next) || !source.SVID().Certificates[0].Equal(first.Certificates[0]) {
		t.Fatal("what was last good is gone")
	}

	write(old, next)
	second := show(next)
	step("both at once", true, true, false)

	if !believes(old) || !believes(next) || !source.SVID().Certificates[0].Equal(second.Certificates[0]) {
		t.Fatal("the new ones are not in use")
	}

	third, err := NewCA(alpha, time.Now())
	must(t, err)
	write(third)
	show(next)
	step("an SVID, with a bundle that certifies neither the new nor the old one", true, false, true)

	if !believes(next) || believes(third) {
		t.Fatal("the bundle that fits no SVID is in use")
	}

	ctx, cancel := context.WithCancel(context.Background())

	var run sync.WaitGroup
	run.Go(func() { source.Run(ctx, slog.New(slog.DiscardHandler)) })
	defer run.Wait()
	defer cancel()
	write(next)
	eventually(t, "the old CA is believed no longer", func() bool { return !believes(old) && believes(next) })

	fixed := NewSource(ended(t, next))
	must(t, fixed.Follow(NewBundles(), bundle))
	write(old, next)

	if _, taken, err := fixed.reload(); !taken || err != nil {
		t.Errorf("beside an SVID that has ended: %v, %v", taken, err)
	}
}

// ended is an SVID that has ended.
func ended(t *testing.T, ca *CA) *x509svid.SVID {
	return ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-20*time.Minute), time.Now().Add(-10*time.Minute)
	})
}
