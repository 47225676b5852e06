package node

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/trust"
)

// An SVID that was not renewed is logged once a day before its end, and once at its end; one
// that lives an hour, when three quarters of that are over.
//
// Requirement: OPS-016
func TestAnSVIDThatEndsIsLogged(t *testing.T) {
	for lifetime, notice := range map[time.Duration]time.Duration{
		90 * 24 * time.Hour: 24 * time.Hour,
		time.Hour:           15 * time.Minute,
	} {
		now := time.Now()

		ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), now)
		must(t, err)

		svid, err := ca.Issue("/roster/node/1", lifetime, now)
		must(t, err)

		var out bytes.Buffer

		l := &stateLog{
			svid: func() *x509.Certificate { return svid.Certificates[0] },
			log:  slog.New(slog.NewTextHandler(&out, nil)),
		}
		end := svid.Certificates[0].NotAfter

		for _, step := range []struct {
			at    time.Time
			lines int
		}{
			{end.Add(-notice - 2*time.Minute), 0},
			{end.Add(-notice / 2), 1},
			{end.Add(-time.Second), 1},
			{end, 2},
			{end.Add(time.Hour), 2},
		} {
			if l.checkSVID(step.at); strings.Count(out.String(), "\n") != step.lines {
				t.Errorf("of %v, %v after the end the log has not %d lines:\n%s", lifetime, step.at.Sub(end),
					step.lines, &out)
			}
		}

		if !strings.Contains(out.String(), "expires soon") || !strings.Contains(out.String(), "has expired") {
			t.Errorf("the log is\n%s", &out)
		}

		if svid, err = ca.Issue("/roster/node/1", 10*lifetime, now); err != nil {
			t.Fatal(err)
		}

		if l.checkSVID(end); strings.Count(out.String(), "\n") != 2 {
			t.Errorf("a new SVID is logged as ending:\n%s", &out)
		}
	}
}

// A leader, and readiness, are logged when they change, and a node that changes all the time
// does not fill the log.
//
// Requirement: OPS-015
func TestAChangeOfStateIsLoggedOnce(t *testing.T) {
	var (
		out    bytes.Buffer
		leader spiffeid.ID
		why    = errors.New("no leader is known")
	)

	l := &stateLog{
		leader: func() (spiffeid.ID, bool) { return leader, !leader.IsZero() },
		ready:  func() error { return why },
		svid:   func() *x509.Certificate { return nil },
		log:    slog.New(slog.NewTextHandler(&out, nil)),
		lines:  rate.NewLimiter(rate.Every(stateLinePace), stateLines),
	}
	now := time.Now()
	elect := func(path string) {
		leader = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/" + path)
		why = nil
	}

	l.check(now)
	elect("1")

	for range 100 {
		l.check(now)
	}

	leader, why = spiffeid.ID{}, errors.New("this member is behind the leader")
	l.check(now.Add(time.Second))
	elect("1")
	l.check(now.Add(2 * time.Second)) // it was for a moment

	leader, why = spiffeid.ID{}, errors.New("no leader is known")
	l.check(now.Add(3 * time.Second))
	l.check(now.Add(4 * time.Second))
	l.check(now.Add(5 * time.Second))
	elect("2")
	l.check(now)

	var got []string

	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " level=")
		got = append(got, text)
	}

	want := `INFO msg="leader elected" leader=spiffe://alpha.test/roster/node/1|INFO msg=ready|` +
		`WARN msg="not ready" err="no leader is known"|` +
		`INFO msg="leader elected" leader=spiffe://alpha.test/roster/node/2|INFO msg=ready`
	if strings.Join(got, "|") != want {
		t.Errorf("the log is\n%s", &out)
	}

	out.Reset()

	for i := range 1000 {
		elect([]string{"1", "2"}[i%2])
		l.check(now.Add(time.Duration(i) * 100 * time.Millisecond))
	}

	if lines := strings.Count(out.String(), "\n"); lines > stateLines+10 {
		t.Errorf("%d lines in 100 s", lines)
	}
}
