package domain

import (
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/trust"
)

// A bundle that was chosen for connections vouches for no file of another domain, and an empty file isn't taken for a
// missing flag: in both cases the verdict would rest on an anchor that nobody chose for it.
//
// Requirement: SEC-017
func TestAVerdictRestsOnTheChosenAnchor(t *testing.T) {
	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), time.Now())
	must(t, err)

	dir := t.TempDir()
	bundle, empty := filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "empty")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Bundle().X509Authorities()[0].Raw})
	must(t, os.WriteFile(bundle, authority, 0o600))
	must(t, os.WriteFile(empty, nil, 0o600))

	session := &connect.Session{Console: &cli.Console{}, Directory: connect.NewDirectory(func(name string) string {
		return map[string]string{"ROSTER_BUNDLE": bundle}[name]
	}, nil)}

	var options trust.VerifyOptions

	must(t, addBundle(session, &options))

	if options.Bundle == nil || !options.OfConnection {
		t.Errorf("the bundle of the environment is an anchor for any domain: %+v", options)
	}

	for _, v := range []proofVerification{{keysFile: empty}, {inclusionFile: empty}} {
		if _, err := v.options(session); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// The end of a file that no signature covers is nobody's word.
//
// Requirement: SEC-017
func TestOnlyASignedFileExpires(t *testing.T) {
	for signed, want := range map[bool]string{true: "proof is expired", false: "proof is not authentic"} {
		report := &trust.Report{Signed: signed, Verdict: "expired"}

		err := verdictFailure(fmt.Errorf("its deadline: %w", trust.ErrExpired), "proof", report)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("signed %t: %v, want %q", signed, err, want)
		}
	}
}
