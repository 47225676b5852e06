package domain

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/node/dnssd"
)

// A fakeNetwork is a browser with fixed results.
type fakeNetwork struct {
	found []dnssd.Found
	full  bool
	err   error
}

func (n fakeNetwork) Browse(context.Context) ([]dnssd.Found, bool, error) {
	return n.found, n.full, n.err
}

// The answers are printed as claims.
//
// Requirement: AD-007, AD-072
func TestFindPrintsClaims(t *testing.T) {
	found := fakeNetwork{found: []dnssd.Found{{
		Domain: spiffeid.RequireTrustDomainFromString("alpha.test"), URL: "https://ad.alpha.test",
		Host: "10.0.0.1:8400", Path: "/.well-known/ad", Instance: "a\x1bb",
	}}}
	for output, want := range map[cli.Format]string{
		"table": "DOMAIN (CLAIMED)\tURL (CLAIMED)\tHOST\nalpha.test\thttps://ad.alpha.test\t10.0.0.1:8400\n",
		"wide":  "\ta\\x1bb\t/.well-known/ad\n",
		"json": `{"directories":[{"domain":"alpha.test","url":"https://ad.alpha.test",` +
			`"host":"10.0.0.1:8400","path":"/.well-known/ad","instance":"a\u001bb","authenticated":false}]}`,
	} {
		var out, notes bytes.Buffer

		console := &cli.Console{Stdout: &out, Stderr: &notes, Format: output}
		if err := find(t.Context(), console, found, time.Second); err != nil || !strings.Contains(out.String(), want) ||
			!strings.Contains(notes.String(), "not authenticated") {
			t.Errorf("%s: %v, %q, %q; want %q", output, err, out.String(), notes.String(), want)
		}
	}

	var out, notes bytes.Buffer

	console := &cli.Console{Stdout: &out, Stderr: &notes, Format: cli.FormatJSON}
	if err := find(t.Context(), console, fakeNetwork{}, time.Second); err != nil ||
		out.String() != "{\"directories\":[]}\n" || !strings.Contains(notes.String(), "No directory answered") {
		t.Errorf("nothing found: %v, %q, %q", err, out.String(), notes.String())
	}

	if err := find(t.Context(), console, fakeNetwork{full: true}, time.Second); err != nil ||
		!strings.Contains(notes.String(), "too many answers") {
		t.Errorf("a flood of answers: %v, %q", err, notes.String())
	}

	if err := find(t.Context(), console, fakeNetwork{err: errors.New("no route")},
		time.Second); cli.FailureOf(err).Code != 1 {
		t.Errorf("cannot ask: %v", err)
	}

	for _, wait := range []time.Duration{0, 2 * time.Minute} {
		if err := find(t.Context(), console, fakeNetwork{}, wait); cli.FailureOf(err).Code != 2 {
			t.Errorf("--wait %s: %v", wait, err)
		}
	}
}
