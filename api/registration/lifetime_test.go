package registration

import (
	"net/http"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
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
		l := Lifetimes{Credentials: x.lives}

		c := &request.Call{Request: &http.Request{}, Credential: request.Credential{Life: x.life}}
		if got := l.Cap(c, x.asked); got != x.want {
			t.Errorf("%d lives of %s, asked for %d: %d, want %d", x.lives, x.life, x.asked, got, x.want)
		}

		if got := l.CapRefresh(c, x.asked, held); got != x.want {
			t.Errorf("%d lives of %s, a refresh that asks for %d: %d, want %d", x.lives, x.life, x.asked, got, x.want)
		}

		if got := l.CapRefresh(c, x.kept, held); got != x.wantsKept {
			t.Errorf("%d lives of %s, and %d are kept: %d, want %d", x.lives, x.life, held.Lifetime, got, x.wantsKept)
		}
	}
}

// CallerLimits give some callers a floor and a ceiling of their own: what asks for less is
// refused, what asks for more is granted the ceiling, and what does not say gets what is
// between.
//
// Requirement: AD-010, AD-011
func TestSomeCallersHaveLifetimesOfTheirOwn(t *testing.T) {
	batch, err := directory.ParseIdentityPattern("spiffe://alpha.test/batch/*")
	if err != nil {
		t.Fatal(err)
	}

	l := Lifetimes{
		Min: 120,
		Callers: func() []admission.CallerLimits {
			return []admission.CallerLimits{{Who: batch, MinLifetime: 3600, MaxLifetime: 7200},
				{By: []string{"wpt"}, MinLifetime: 300}}
		},
	}
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
		c := &request.Call{
			Request: &http.Request{}, Identity: identityAt(t, x.who), Credential: request.Credential{Method: x.by},
			Params: request.ParseParams(x.lt),
		}

		got, err := l.parse(c, x.def)
		if got := l.Cap(c, got); err == nil && got != x.granted {
			t.Errorf("%s by %s, %q: granted %d, want %d", x.who, x.by, x.lt, got, x.granted)
		}

		if refused := x.asks == 0 && x.lt != ""; (directory.ProblemOf(err) == directory.BadLifetime) != refused ||
			err == nil && got != x.asks {
			t.Errorf("%s by %s, %q: %d, %v", x.who, x.by, x.lt, got, err)
		}
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
