package gateway_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/limit"
)

// claimLog notes the claims that a domain gets.
type claimLog struct {
	gateway.Claims

	mu  sync.Mutex // guards all
	all []directory.Claim
}

// Claim implements gateway.Claims.
func (l *claimLog) Claim(ctx context.Context, claim directory.Claim) (*directory.StoredAnswer, error) {
	l.mu.Lock()
	l.all = append(l.all, claim)
	l.mu.Unlock()

	return l.Claims.Claim(ctx, claim)
}

// The keys of all identities of another domain are bounded together, whichever kind of token shows
// them, and no two identities share a key. An identity of the own domain has a bound of its own.
//
// Requirement: SEC-004
func TestADomainsKeysAreBoundedTogether(t *testing.T) {
	log := &claimLog{Claims: domain(t)}
	s := newStage(t, func(c *gateway.Config) { c.Claims = log })
	e := aidip(t, s.agent(t, echo).URL, `"operations": [`+translate+`]`)

	callers := []limit.Caller{
		{Kind: limit.Foreign, ID: "spiffe://beta.test/agent/1", Group: "beta.test"},
		{Kind: limit.Foreign, ID: "wimse://beta.test/agent/1", Group: "beta.test"},
		{Kind: limit.Foreign, ID: "spiffe://gamma.test/agent/1", Group: "gamma.test"},
		{Kind: limit.Own, ID: "spiffe://alpha.test/agent/1"},
		{Kind: limit.Own, ID: "spiffe://alpha.test/agent/2"},
	}

	for _, caller := range callers {
		id, err := directory.ParseIdentity(caller.ID)
		must(t, err)

		if _, err := s.Invoke(t.Context(), e, invoke.Request{
			Body: []byte(`{"text":"a"}`), Caller: id, Party: caller, Key: "k",
		}); err != nil {
			t.Fatal(err)
		}
	}

	var groups []string

	numbers, keys := map[directory.Hash]int{}, map[directory.Hash]bool{}
	for _, claim := range log.all {
		if _, known := numbers[claim.Caller]; !known {
			numbers[claim.Caller] = len(numbers)
		}

		groups = append(groups, fmt.Sprint(numbers[claim.Caller]))
		keys[claim.Key] = true
	}

	if got := fmt.Sprint(groups); got != "[0 0 1 2 3]" || len(keys) != len(callers) {
		t.Errorf("the callers count as %s, with %d keys", got, len(keys))
	}
}
