package operator_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
)

// A proof is for one command: a transfer's for the registration that its path names by its rid, and
// a restore's for a restore alone.
//
// Requirement: SEC-012
func TestAProofIsForOneCommand(t *testing.T) {
	own := spiffeid.RequireTrustDomainFromString("alpha.test")
	one, other := directory.NewRID(1, [10]byte{1}).String(), directory.NewRID(1, [10]byte{2}).String()
	ada := directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/ada"))
	body := `{"owner":"spiffe://alpha.test/ada","force":true}`
	transfer := directory.OperatorChange{Action: directory.ActionTransfer, Target: one, Owner: ada}

	for _, c := range []struct {
		target, body string
		change       directory.OperatorChange
		good         bool
	}{
		{"/ad/r/" + one + "/transfer", body, transfer, true},
		{"/ad/r/" + other + "/transfer", body, transfer, false},
		{"/ad/r/printer/transfer", body, transfer, true},
		{operator.PathSnapshot, "", directory.OperatorChange{Action: directory.ActionRestore}, true},
		{operator.PathSnapshot, "", directory.OperatorChange{Action: directory.ActionRestore, Target: one}, false},
	} {
		_, err := operator.CheckOrder(own, c.change,
			&directory.OperatorRequest{Method: "POST", Target: c.target, Body: []byte(c.body)})
		if (err == nil) != c.good {
			t.Errorf("%s for %s %q: %v", c.target, c.change.Action, c.change.Target, err)
		}
	}
}
