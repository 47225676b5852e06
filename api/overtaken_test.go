package api

import (
	"context"
	"net/http"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// outrun is the registry of a domain whose policy is newer than this node's for so
// many tries.
type outrun struct {
	cutOff
	behind     int
	judged     []uint64 // the versions by which the tries were permitted
	linearized int
}

func (r *outrun) Register(_ context.Context, ask directory.RegisterRequest) (directory.Outcome, error) {
	r.judged = append(r.judged, *ask.Caller.PolicyVersion)
	if len(r.judged) <= r.behind {
		return directory.Outcome{}, directory.Refuse(directory.Overtaken,
			"the domain has had another policy since this was permitted")
	}

	return directory.Outcome{Created: true, Position: r.position, Granted: 60}, nil
}

func (r *outrun) Linearize(context.Context) error {
	r.linearized++
	return nil
}

// moving is a policy that is another one each time this node has caught up, and that
// forbids everything from one version on.
type moving struct {
	houseRules
	at     *outrun
	strict int
}

func (p moving) Version() uint64 { return uint64(p.at.linearized) }

func (p moving) Register(directory.Identity, string, *directory.Projection, directory.Visibility) directory.Decision {
	return directory.Decision{Allow: p.at.linearized < p.strict, Policies: []string{"moving"}}
}

// A change that an older policy permitted is asked about again, by the newer one, and
// that so many times and no more.
//
// maxProposals is how often a change is proposed, as package registration bounds it.
const maxProposals = 4

// Requirement: TRUST-013
func TestAChangeThatIsOvertakenIsJudgedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		behind, strict     int
		status, tries, ask int
	}{
		"never":           {0, 9, http.StatusCreated, 1, 0},
		"once":            {1, 9, http.StatusCreated, 2, 1},
		"as may be":       {maxProposals - 1, 9, http.StatusCreated, maxProposals, maxProposals - 1},
		"again and again": {99, 99, http.StatusServiceUnavailable, maxProposals, maxProposals - 1},
		"and forbidden":   {1, 1, http.StatusForbidden, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &outrun{behind: c.behind}
			s := newTestServer(t, func(cfg *Config) { cfg.Registry, cfg.Policy = r, moving{at: r, strict: c.strict} })

			resp := ask(t, s, "/agent/ada", "POST", "/ad/r?agent=one&lt=60", aDocument)
			if resp.StatusCode != c.status || len(r.judged) != c.tries || r.linearized != c.ask {
				t.Errorf("%d after %d tries and %d times caught up, not %d after %d and %d",
					resp.StatusCode, len(r.judged), r.linearized, c.status, c.tries, c.ask)
			}

			for i, version := range r.judged {
				if version != uint64(i) {
					t.Errorf("try %d was judged by version %d", i, version)
				}
			}

			if retry := resp.Header.Get("Retry-After"); (retry != "") != (c.status == http.StatusServiceUnavailable) {
				t.Errorf("Retry-After is %q", retry)
			}
		})
	}
}
