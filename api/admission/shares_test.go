package admission_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// Every pool is divided, and a domain has twice the rate of one identity.
//
// Requirement: SEC-004
func TestSharesAndRatesOfADomain(t *testing.T) {
	synctest.Test(t, testSharesAndRates)
}

func testSharesAndRates(t *testing.T) {
	one := admission.Caller{Party: limit.Caller{Kind: limit.Foreign, ID: "spiffe://beta.test/1", Group: "beta.test"}}
	other := admission.Caller{Party: limit.Caller{Kind: limit.Foreign, ID: "spiffe://beta.test/2", Group: "beta.test"}}
	third := admission.Caller{Party: limit.Caller{Kind: limit.Foreign, ID: "spiffe://beta.test/3", Group: "beta.test"}}

	pools := admission.NewPools(admission.Sizes{
		Requests: 160, Watches: 160, Invocations: 160, Nodes: 160, Awaiting: 160,
	}, nil)

	for name, pool := range map[string]admission.Pool{
		"requests": admission.RequestPool, "watches": admission.WatchPool, "invocations": admission.InvocationPool,
		"nodes": admission.NodePool, "waiting reads": admission.AwaitingPool,
	} {
		if _, err := pools.Take(pool, one, 10); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if _, err := pools.Take(pool, one, 1); directory.ProblemOf(err) != directory.RateLimited {
			t.Errorf("%s: the eleventh of ten places: %v", name, err)
		}
	}

	limiter := admission.NewLimiter(admission.Limits{admission.Reads: 1}, nil) // 10 of one, 20 of all

	refused := 0
	for i := range 30 {
		err := limiter.Pace(http.Header{}, []admission.Caller{one, other, third}[i%3], admission.Reads)
		if errors.As(err, new(*problem.Refusal)) {
			refused++
		}
	}

	if refused != 10 {
		t.Errorf("%d of 30 requests of a domain are refused, want 10", refused)
	}
}

// The addresses of a network have twice the failed credentials of one address together: a /48 of
// IPv6 has 65,536 of them.
//
// Requirement: SEC-004
func TestANetworksFailedCredentialsAreBounded(t *testing.T) {
	synctest.Test(t, testANetworksFailedCredentials)
}

func testANetworksFailedCredentials(t *testing.T) {
	limiter := admission.NewLimiter(nil, nil)
	at := func(network, address int) limit.Caller {
		return limit.StrangerAt(fmt.Sprintf("[2001:db8:%x:%x::1]:443", network, address))
	}

	verified := 0

	for address := range 1000 {
		if limiter.Attempt(at(1, address), limit.Caller{}, admission.Reads) == nil {
			verified++

			limiter.Failed(at(1, address))
		}
	}

	if verified != 400 {
		t.Errorf("%d credentials of a network are verified, want 400", verified)
	}

	if err := limiter.Attempt(at(2, 1), limit.Caller{}, admission.Reads); err != nil {
		t.Errorf("another network: %v", err)
	}
}
