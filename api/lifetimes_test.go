package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// granting is the registry of a node whose leader grants a refresh what it asks for.
type granting struct{ cutOff }

func (granting) Refresh(_ context.Context, r directory.RefreshRequest) (directory.Outcome, error) {
	return directory.Outcome{RID: r.RID, Granted: max(r.Lifetime, 600)}, nil
}

// A refresh that says no lifetime is to keep what was granted, and is told where that
// is not so: it would be refreshed again too late.
//
// Requirement: AD-011, AD-070
func TestARefreshIsToldOfAShorterLifetime(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.CredentialLives, c.Registry = 1, granting{}
	}, entry(t, alpha, rid(1), "one", 1, aDocument))
	whole := s.cfg.Identify

	s.cfg.Identify = func(r *http.Request) (request.Credential, error) {
		c, err := whole(r)
		c.Life = 20 * time.Minute

		return c, err
	}
	for _, target := range []string{"/ad/r/" + rid(1), "/ad/r/one", "/ad/r/one?lt=7200"} {
		if body := wantStatus(t, ask(t, s, "/agent/ada", "POST", target, ""), 200); body["lt"] != 1200. {
			t.Errorf("%s: told %v", target, body)
		}
	}

	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r/one?lt=900", ""), 204)
}

// A renewal among many that asks for less than its caller's minimum is refused.
//
// Requirement: AD-010, AD-011
func TestARenewalUnderTheMinimumIsRefused(t *testing.T) {
	batch, err := directory.ParseIdentityPattern("spiffe://alpha.test/batch/*")
	must(t, err)

	s := newTestServer(t, func(c *Config) {
		c.CallerLimits = []admission.CallerLimits{{Who: batch, MinLifetime: 3600}}
	})

	resp := ask(t, s, "/batch/one", "POST", "/ad/refresh", `[{"id":"`+rid(1)+`","lt":600}]`)

	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"problem":"bad-lifetime"`) {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
}
