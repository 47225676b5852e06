package agents

import (
	"testing"

	"github.com/roster-mesh/roster/discovery"
)

// Of two demands for verification the stronger one holds.
//
// Requirement: AI-014
func TestTheStrongerDemandHolds(t *testing.T) {
	for policy, want := range map[string]discovery.Verification{
		`{}`:                discovery.Pending,
		`{"verified":true}`: discovery.Verified,
		`{"verified":true,"min_verification":"pending"}`: discovery.Verified,
		`{"verified":true,"min_verification":"logged"}`:  discovery.Logged,
	} {
		ask, err := parseResolution([]byte(`{"intent":"print","policy":` + policy + `}`))
		if err != nil {
			t.Fatalf("%s: %v", policy, err)
		}

		if got := ask.request.Constraints.MinVerification; got != want {
			t.Errorf("%s asks for %v, want %v", policy, got, want)
		}
	}
}
