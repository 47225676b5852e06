package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// What is granted is bound by the lifetime of the credential, and what was granted
// before is not kept over it.
//
// Requirement: AD-070
func TestACredentialBoundsLifetimes(t *testing.T) {
	held := &directory.Entry{Lifetime: 86400}
	for _, x := range []struct {
		lives           uint32
		life            time.Duration
		asked, want     uint32
		kept, wantsKept uint32
	}{
		{0, time.Hour, 604800, 604800, 0, 0},
		{10, time.Hour, 604800, 36000, 0, 36000},
		{10, time.Hour, 3600, 3600, 0, 36000},
		{10, 0, 604800, 604800, 0, 0}, // nothing is known of it
		{24, time.Hour, 604800, 86400, 0, 0},
		{1, time.Second, 604800, directory.MinLifetime, 0, directory.MinLifetime},
		{1 << 31, 1000 * time.Hour, 604800, 604800, 0, 0},
	} {
		s := newTestServer(t, func(c *Config) { c.CredentialLives = x.lives })
		c := &call{credential: Credential{Life: x.life}}
		if got := s.capped(c, x.asked); got != x.want {
			t.Errorf("%d lives of %s, asked for %d: %d, want %d", x.lives, x.life, x.asked, got, x.want)
		}
		if got := s.cappedOf(c, x.kept, held); got != x.wantsKept {
			t.Errorf("%d lives of %s, and %d are kept: %d, want %d", x.lives, x.life, held.Lifetime, got, x.wantsKept)
		}
	}
}

// granting is the registry of a node whose leader grants a refresh what it asks for.
type granting struct{ cutOff }

func (granting) Refresh(_ context.Context, r directory.Refreshing) (directory.Outcome, error) {
	return directory.Outcome{RID: r.RID, Granted: max(r.Lifetime, 600)}, nil
}

// A refresh that says no lifetime is to keep what was granted, and is told where that
// is not so: it would be refreshed again too late.
//
// Requirement: AD-011, AD-070
func TestARefreshIsToldOfAShorterLifetime(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.CredentialLives, c.Registry = 1, granting{} }, entry(t, alpha, rid(1), "one", 1, aDocument))
	whole := s.cfg.Identify
	s.cfg.Identify = func(r *http.Request) (Credential, error) {
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

// Terms give some callers a floor and a ceiling of their own: what asks for less is
// refused, what asks for more is granted the ceiling, and what does not say gets what is
// between.
//
// Requirement: AD-010, AD-011
func TestSomeCallersHaveLifetimesOfTheirOwn(t *testing.T) {
	batch, err := directory.ParseIdentityPattern("spiffe://alpha.test/batch/*")
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(c *Config) {
		c.MinLifetime = 120
		c.Terms = []Terms{{Who: batch, MinLifetime: 3600, MaxLifetime: 7200}, {By: []string{"wpt"}, MinLifetime: 300}}
	})
	for _, x := range []struct {
		who, by, lt   string
		def           uint32
		asks, granted uint32 // 0 where it is refused
	}{
		{"/batch/one", "x509-svid", "lt=3599", 86400, 0, 0},
		{"/batch/one", "x509-svid", "lt=3600", 86400, 3600, 3600},
		{"/batch/one", "x509-svid", "lt=90000", 86400, 90000, 7200},
		{"/batch/one", "x509-svid", "", 600, 3600, 3600},
		{"/batch/one", "x509-svid", "", 0, 0, 0}, // a refresh that keeps what was granted
		{"/agent/ada", "wpt", "lt=299", 86400, 0, 0},
		{"/agent/ada", "wpt", "lt=300", 86400, 300, 300},
		{"/agent/ada", "x509-svid", "lt=119", 86400, 0, 0},
		{"/agent/ada", "x509-svid", "lt=120", 86400, 120, 120},
		{"/agent/ada", "x509-svid", "lt=900000", 86400, 900000, 900000}, // the domain's bound is the leader's
	} {
		c := &call{id: identityAt(t, x.who), credential: Credential{Method: x.by}, params: parseParams(x.lt)}
		got, err := s.lifetime(c, x.def)
		if got := s.capped(c, got); err == nil && got != x.granted {
			t.Errorf("%s by %s, %q: granted %d, want %d", x.who, x.by, x.lt, got, x.granted)
		}
		if refused := x.asks == 0 && x.lt != ""; (directory.ProblemOf(err) == directory.BadLifetime) != refused || err == nil && got != x.asks {
			t.Errorf("%s by %s, %q: %d, %v", x.who, x.by, x.lt, got, err)
		}
	}
	one := &call{id: identityAt(t, "/batch/one")}
	if _, _, err := s.renewable(one, wire.Renewal{ID: rid(1), LifetimeSeconds: 600}, nil); directory.ProblemOf(err) != directory.BadLifetime {
		t.Errorf("a renewal under the floor: %v", err)
	}
}

func identityAt(t *testing.T, path string) directory.Identity {
	t.Helper()
	id, err := directory.ParseIdentity("spiffe://alpha.test" + path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
