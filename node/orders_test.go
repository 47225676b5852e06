package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/roster-mesh/roster/trust/policy"
)

// Commands that a node applied and did not check are counted, logged as an error and recorded apart
// from those that came in a snapshot.
//
// Requirement: SEC-012
func TestUncheckedCommandsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	trail, err := audit.Open(path, audit.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	var log bytes.Buffer

	m := metrics.New("1.0.0")
	r := &commandRecorder{trail: trail, log: slog.New(slog.NewTextHandler(&log, nil)), unchecked: m.Unchecked}
	r.missed(1, 5, 4, 4) // none

	// The reader has seen number 100 before a restore.
	if last := r.recordNews(consensus.News{After: 1, Newest: 10, InState: 4}, 1); last != 10 {
		t.Errorf("it goes on behind %d", last)
	}

	must(t, trail.Close())

	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))

	for reason, want := range map[string]string{metrics.MissedSnapshot: "3", metrics.MissedOverflow: "6"} {
		series := `roster_operator_commands_unchecked_total{reason="` + reason + `"} ` + want
		if !strings.Contains(page.Body.String(), series) {
			t.Errorf("no series %s", series)
		}
	}

	if bytes.Count(log.Bytes(), []byte("level=WARN")) != 1 || bytes.Count(log.Bytes(), []byte("level=ERROR")) != 1 {
		t.Errorf("the log is %s", log.Bytes())
	}

	tail, err := audit.ReadTail(path, time.Now())
	if err != nil || len(tail.Suspect) != 1 || tail.Suspect[0].Outcome != directory.OutcomeUnchecked ||
		tail.Suspect[0].Count != 6 {
		t.Errorf("suspect are %+v, %v", tail.Suspect, err)
	}
}

// A bundle is checked at its endpoint once: not again when the node starts and applies its log again,
// but whenever it is behind the log that the node had, whatever number its command has.
//
// Requirement: SEC-012
func TestABundleIsCheckedOnce(t *testing.T) {
	trail, err := audit.Open(filepath.Join(t.TempDir(), "audit.jsonl"),
		audit.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	t.Cleanup(func() { _ = trail.Close() })

	checked := 0
	r := &commandRecorder{
		trail: trail, log: slog.New(slog.DiscardHandler), bundle: func(*directory.BundleChange) { checked++ },
		started: directory.Position{Epoch: 1, Revision: 5},
	}

	for _, c := range []struct {
		number uint64
		again  bool
		want   int
	}{{5, true, 0}, {5, false, 1}, {6, true, 1}, {7, false, 1}} {
		checked = 0
		r.record(directory.OperatorCommand{
			OperatorChange: directory.OperatorChange{
				Action: directory.ActionBundle, Node: true, Bundle: &directory.BundleChange{},
			},
			Number: c.number, Position: directory.Position{Epoch: 1}, Again: c.again,
		})

		if checked != c.want {
			t.Errorf("number %d, again %t: checked %d times", c.number, c.again, checked)
		}
	}
}

// While the domain's time goes on without a step of the machines' clocks, the proof of the operator who
// confirms that step has the machines' time. So it holds by the step that the order names, at the leader and at
// every member, and for no order of another step.
//
// Requirement: FLD-024, SEC-012
func TestAProofConfirmsAStepOfTheClock(t *testing.T) {
	alpha, now := spiffeid.RequireTrustDomainFromString("alpha.test"), time.Now()

	ca, err := trust.NewCA(alpha, now)
	must(t, err)

	svid, err := ca.Issue("/ops/operator", 10*time.Hour, now.Add(-5*time.Hour))
	must(t, err)

	bundles := trust.NewBundles()
	must(t, bundles.SetX509(alpha, ca.Bundle().X509Authorities()))

	builtin, err := policy.New("shipped", alpha)
	must(t, err)

	o := &orders{
		domain: alpha, require: true, chains: trust.NewClientVerifier(bundles), policy: builtin, builtin: builtin,
	}
	pair := tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
	pair.Certificate = append(pair.Certificate, svid.Certificates[0].Raw)
	body := []byte(`{"step_seconds":-3600}`)

	text, err := operatorproof.Make(&pair, operatorproof.Request{
		Domain: "alpha.test", Method: http.MethodPost, URL: "https://n/v1/operator/raft/clock",
		Body: sha256.Sum256(body),
	}, now)
	must(t, err)

	proof, err := operatorproof.Parse(text)
	must(t, err)

	request := &directory.OperatorRequest{
		By: directory.IdentityOf(svid.ID), Method: http.MethodPost, Target: "/v1/operator/raft/clock", Body: body,
		BodyHash: sha256.Sum256(body), Proof: text, ProofUntil: proof.Expires.Add(operatorproof.Skew).Unix(),
	}
	request.ProofID = proofID(request.By, proof)

	for _, c := range []struct {
		action, target string
		at             time.Time // the domain's
		good           bool
	}{
		{directory.ActionConfirmClock, "-1h0m0s", now.Add(time.Hour), true},
		{directory.ActionConfirmClock, "-59m40s", now.Add(time.Hour - 20*time.Second), true},
		{directory.ActionConfirmClock, "-1h0m0s", now, false},
		{directory.ActionConfirmClock, "-1h3m0s", now.Add(time.Hour + 3*time.Minute), false},
		{directory.ActionConfirmClock, "", now, false},
		{directory.ActionRemoveMember, "-1h0m0s", now, false},
	} {
		err := o.CheckCommand(directory.OperatorCommand{
			OperatorChange: directory.OperatorChange{Action: c.action, Target: c.target}, Request: request,
			Judged: c.at,
		})
		if (err == nil) != c.good {
			t.Errorf("%s %s, %v from the proof's time: %v", c.action, c.target, c.at.Sub(now), err)
		}
	}
}

var must = directorytest.Must
