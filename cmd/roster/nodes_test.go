package main

import (
	"net"
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
// notes/users.md: "an expired client certificate".
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

// A command ends in the given time when nothing answers, and another node is asked while there
// is time.
//
// Requirement: OPS-006
func TestACommandEndsInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and no one answers
	must(t, err)

	defer func() { _ = silent.Close() }()

	hole := "https://" + silent.Addr().String()
	w := newWorld(t, says(`{"agents":[{"agent":"weather"}]}`))

	code, _, errs := w.run("lookup", "--address", hole, "--domain", "alpha.test", "--timeout", "1s")
	if want := "roster: no answer from " + hole + " within 1s\n"; code != 6 || !strings.HasPrefix(errs, want) {
		t.Errorf("exit code %d: %s\nwant %s", code, errs, want)
	}

	code, out, errs := w.run("lookup", "--address", hole, "--address", w.env["ROSTER_ADDRESS"],
		"--domain", "alpha.test", "--timeout", "60s")
	if code != 0 || !strings.Contains(out, "weather") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}

	w.env["ROSTER_TIMEOUT"] = "soon"
	if code, _, errs := w.run("lookup"); code != 2 || !strings.Contains(errs, "ROSTER_TIMEOUT must be a duration") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
