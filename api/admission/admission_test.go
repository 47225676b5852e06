package admission

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// Requirement: SEC-004
func TestParties(t *testing.T) {
	parties := Parties{
		Domain: spiffeid.RequireTrustDomainFromString("alpha.test"), Own: []string{"oauth:https://login.alpha.test#"},
	}
	for _, x := range []struct {
		identity, remote string
		want             limit.Caller
	}{
		{"spiffe://alpha.test/agent/ada", "192.0.2.1:1", limit.Caller{Kind: limit.Own,
			ID: "spiffe://alpha.test/agent/ada"}},
		{"oauth:https://login.alpha.test#ada", "", limit.Caller{Kind: limit.Own,
			ID: "oauth:https://login.alpha.test#ada"}},
		{"spiffe://beta.test/agent/ada", "192.0.2.1:1", limit.Caller{Kind: limit.Foreign,
			ID: "spiffe://beta.test/agent/ada", Group: "beta.test"}},
		{"wimse://alpha.test/agent/ada", "192.0.2.1:1", limit.Caller{Kind: limit.Foreign,
			ID: "wimse://alpha.test/agent/ada", Group: "alpha.test"}},
		{"oauth:https://login.example#a#da", "", limit.Caller{Kind: limit.Foreign,
			ID: "oauth:https://login.example#a#da", Group: "https://login.example"}},
		{"oauth:https://login.example#ada", "", limit.Caller{Kind: limit.Foreign, ID: "oauth:https://login.example#ada",
			Group: "https://login.example"}},
		{"", "192.0.2.1:1", limit.Caller{Kind: limit.Stranger, ID: "192.0.2.1"}},
		{"", "[2001:db8::1]:1", limit.Caller{Kind: limit.Stranger, ID: "2001:db8::/64", Group: "2001:db8::/48"}},
	} {
		var identity directory.Identity
		if x.identity != "" {
			var err error
			if identity, err = directory.ParseIdentity(x.identity); err != nil {
				t.Fatal(err)
			}
		}

		if got := parties.Of(identity, x.remote); got != x.want {
			t.Errorf("%s at %s is %+v, want %+v", x.identity, x.remote, got, x.want)
		}
	}
}

// A body is counted before it is read: by its declared length at once, or as it grows, up to
// the caller's share; and it is given back.
//
// Requirement: SEC-002
func TestABodyIsCountedBeforeItIsRead(t *testing.T) {
	const share = 64 << 10 // of an address, a sixteenth

	pools := NewPools(Sizes{RequestBytes: 16 * share}, nil)
	caller := Caller{Party: limit.StrangerAt("192.0.2.1:1")}
	open := func(size, declared int, most int64) (*Body, error) {
		r := httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(strings.Repeat("x", size))))
		r.ContentLength = int64(declared)

		return pools.OpenBody(httptest.NewRecorder(), r, caller, most)
	}

	first, err := open(0, share/2+1, share)
	if err != nil || pools.Held(RequestBytesPool) != share/2+1 {
		t.Fatalf("%v; %d bytes are in flight, none of which was read", err, pools.Held(RequestBytesPool))
	}

	if _, err := open(0, share/2, share); directory.ProblemOf(err) != directory.RateLimited {
		t.Errorf("a declared length over the share: %v", err)
	}

	endless, err := open(1<<20, -1, 2*share)
	if err != nil {
		t.Fatal(err)
	}

	read, err := io.Copy(io.Discard, endless)
	if directory.ProblemOf(err) != directory.RateLimited || read > share/2 || pools.Held(RequestBytesPool) > share {
		t.Errorf("%d bytes of an endless body are read, then %v; %d are in flight", read, err,
			pools.Held(RequestBytesPool))
	}

	endless.Release()
	first.Release()

	if pools.Held(RequestBytesPool) != 0 {
		t.Errorf("%d bytes are still counted", pools.Held(RequestBytesPool))
	}

	// A body that is longer than its route takes is not counted beyond that.
	long, err := open(share, -1, 20<<10)
	if err != nil {
		t.Fatal(err)
	}

	if read, err := io.Copy(io.Discard, io.LimitReader(long, 20<<10+1)); err != nil || read != 20<<10+1 ||
		pools.Held(RequestBytesPool) != 20<<10 {
		t.Errorf("%d bytes are read, %d are in flight: %v", read, pools.Held(RequestBytesPool), err)
	}

	long.Release()

	if pools.Held(RequestBytesPool) != 0 {
		t.Errorf("%d bytes of a body that was counted in pieces are still counted", pools.Held(RequestBytesPool))
	}
}
