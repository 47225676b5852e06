package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// The directory's domain is that of --domain or the context. With a bundle alone it is that
// of the node's certificate, which is said once.
//
// Requirement: TRUST-001
func TestTheDirectoryIsOfTheChosenDomain(t *testing.T) {
	w := newWorld(t, says(`{"agents":[]}`))
	if code, _, errs := w.run("lookup"); code != 0 || strings.Contains(errs, "domain") {
		t.Errorf("with the right domain: exit code %d: %s", code, errs)
	}

	if code, _, errs := w.run("lookup", "--domain", "beta.test"); code != 12 ||
		!strings.Contains(errs, "spiffe://alpha.test/roster/node/1 is a node of another domain than beta.test") {
		t.Errorf("with another domain: exit code %d: %s", code, errs)
	}

	// A domain of the environment is that of the address there.
	w.env["ROSTER_DOMAIN"] = "beta.test"
	if code, _, errs := w.run("lookup", "--address", w.env["ROSTER_ADDRESS"]); code != 0 ||
		strings.Count(errs, "The directory is of the domain alpha.test") != 1 {
		t.Errorf("another address than the environment's: exit code %d: %s", code, errs)
	}

	delete(w.env, "ROSTER_DOMAIN")

	if code, _, errs := w.run("lookup"); code != 0 ||
		strings.Count(errs, "The directory is of the domain alpha.test") != 1 {
		t.Errorf("with a bundle alone: exit code %d: %s", code, errs)
	}

	w.run("context", "set", "alpha", "--domain", "alpha.test")

	if code, _, errs := w.run("lookup", "--context", "alpha"); code != 0 || strings.Contains(errs, "domain") {
		t.Errorf("with the context's domain: exit code %d: %s", code, errs)
	}
}

// An expired certificate is named with its date, before the server refuses it without one.
//
// Requirement: OPS-006
func TestAnExpiredClientCertificateIsNamed(t *testing.T) {
	w := newWorld(t, says(`{"agents":[]}`))
	ca, err := trust.NewCA(alpha, time.Now().Add(-72*time.Hour))
	must(t, err)
	svid, err := ca.Issue("/agent/ada", time.Hour, time.Now().Add(-72*time.Hour))
	must(t, err)
	cert, key := filepath.Join(w.dir, "old.pem"), filepath.Join(w.dir, "old.key")
	must(t, trust.WriteSVID(svid, cert, key))

	code, _, errs := w.run("lookup", "--cert", cert, "--key", key)

	want := "the client certificate expired " + svid.Certificates[0].NotAfter.UTC().Format(time.RFC3339) +
		", 2 days ago"
	if code != 12 || !strings.Contains(errs, want) {
		t.Errorf("exit code %d: %s\nwant %q", code, errs, want)
	}
}
