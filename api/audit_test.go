package api

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// quietPeerings takes rules.
type quietPeerings struct{ operator.Peers }

func (quietPeerings) Set(context.Context, spiffeid.TrustDomain, operator.PeerSettings) error {
	return nil
}

// Other rules of a peering have their two lines in the audit trail, and so has a
// snapshot that is taken away. Where the first can't be written, neither happens.
//
// Requirement: TRUST-015
func TestOperatorsAreAudited(t *testing.T) {
	var trail invocationTrail
	s := newTestServer(t, func(cfg *Config) {
		cfg.AuditLog, cfg.Peerings, cfg.Backups = &trail, quietPeerings{}, quietBackups{backup: []byte("all")}
	})

	c := newTestClient(t, s, "/ops/operator")
	for action, do := range map[string]func() error{
		"peer.set": func() error {
			return c.Operator().SetPeer(t.Context(), "beta.test",
				apiclient.PeerSettings{Export: &apiclient.PeerRules{}})
		},
		"history.erase": func() error {
			return c.Operator().EraseHistory(t.Context(), directory.NewRID(1, [10]byte{}).String())
		},
		"snapshot.save": func() error { return c.Operator().SaveSnapshot(t.Context(), io.Discard) },
	} {
		trail = invocationTrail{}

		if err := do(); err != nil {
			t.Fatalf("%s: %v", action, err)
		}

		if l := trail.lines; len(l) != 2 || l[0].Action != action || l[0].Actor != identity("/ops/operator") ||
			l[0].Outcome != "" || l[1].Outcome != "ok" {
			t.Errorf("%s: the lines are %+v", action, l)
		}

		trail.err = directory.Refuse(directory.Unavailable, "the disk is full")
		if err := do(); err == nil {
			t.Errorf("%s happens without a line", action)
		}
	}
}

// innocent is a node without evidence against a peer.
type innocent struct{ quietOperator }

func (innocent) Evidence(spiffeid.TrustDomain, string) ([]byte, error) {
	return nil, directory.Refuse(directory.NotFound, "no evidence")
}

// An operator's read that finds nothing has no line of a refusal; one by another caller has.
//
// Requirement: TRUST-015
func TestAReadThatFindsNothingIsNotRefused(t *testing.T) {
	var trail invocationTrail

	s := newTestServer(t, func(cfg *Config) { cfg.AuditLog, cfg.Operator = &trail, innocent{} })

	const path = "/v1/operator/peers/evidence?domain=beta.test"
	wantStatus(t, ask(t, s, "/ops/operator", "GET", path, ""), 404)

	if len(trail.lines) != 0 {
		t.Errorf("the lines are %+v", trail.lines)
	}

	wantStatus(t, ask(t, s, "/agents/other", "GET", path, ""), 403)

	if len(trail.lines) != 1 || trail.lines[0].Action != "peer.read" {
		t.Errorf("the lines are %+v", trail.lines)
	}
}

// A snapshot is all that there is: no token is good for it, as for no change of an
// operator's.
//
// Requirement: TRUST-006
func TestSnapshotsTakeACertificate(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		cfg.Identify = func(*http.Request) (request.Credential, error) {
			return request.Credential{Identity: identity("/ops/operator"), Token: true}, nil
		}
	})
	wantStatus(t, ask(t, s, "", "GET", "/v1/operator/raft", ""), 200)
	wantStatus(t, ask(t, s, "", "GET", "/v1/operator/snapshot", ""), 403)
}

// A page of another site can't have a browser change anything with its user's
// certificate, not even where a request needs no body.
//
// Requirement: OPS-021
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	var told []string

	s := newTestServer(t, func(cfg *Config) { cfg.Cluster = quietCluster{told: &told} })
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"}, {"Origin", "null"}} {
		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/leave", "", header...), 403)
	}

	if len(told) > 0 {
		t.Errorf("the node was told %q", told)
	}

	for _, header := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Origin", publicURL}} {
		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/leave", "", header...), 204)
	}

	wantStatus(t, ask(t, s, "/ops/operator", "GET", "/v1/operator/raft", "", "Origin", "https://evil.example"), 200)
}
