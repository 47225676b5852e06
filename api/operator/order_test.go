package operator_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
)

// A proof is for one command: a transfer's for the registration that its path names, and a restore's
// for a restore alone.
//
// Requirement: SEC-012
func TestAProofIsForOneCommand(t *testing.T) {
	own := spiffeid.RequireTrustDomainFromString("alpha.test")
	one, other := directory.NewRID(1, [10]byte{1}).String(), directory.NewRID(1, [10]byte{2}).String()
	ada := directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/ada"))
	body := `{"owner":"spiffe://alpha.test/ada","force":true}`
	transfer := directory.OperatorChange{Action: directory.ActionTransfer, Target: one, Owner: ada, Agent: "printer"}
	pattern := "spiffe://alpha.test/roster/node/*"
	standing := `{"id":"` + pattern + `","standing":true,"max":3}`

	for _, c := range []struct {
		target, body string
		change       directory.OperatorChange
		good         bool
	}{
		{"/ad/r/" + one + "/transfer", body, transfer, true},
		{"/ad/r/" + other + "/transfer", body, transfer, false},
		{"/ad/r/printer/transfer", body, transfer, true},
		{"/ad/r/scanner/transfer", body, transfer, false},
		{operator.PathRaftClock, `{"step_seconds":-3600}`, confirms("-1h0m0.5s"), true},
		{operator.PathRaftClock, `{"step_seconds":-3600}`, confirms("1h0m0s"), false},
		{operator.PathRaftClock, `{"step_seconds":-3600}`, confirms("-1h2m0s"), false},
		{operator.PathRaftClock, `{"step_seconds":-3600}`, confirms("-3600s"), false},
		{operator.PathRaftClock, `{"step_seconds":30}`, confirms("1m20s"), false},
		{operator.PathRaftClock, `{}`, confirms("1h0m0s"), false},
		{operator.PathRaftAdmit, standing, admits(pattern, &directory.AdmissionChange{Standing: true, Max: 3}), true},
		{operator.PathRaftAdmit, standing, admits(pattern, &directory.AdmissionChange{Standing: true, Max: 4}), false},
		{operator.PathRaftAdmit, standing, admits(pattern, &directory.AdmissionChange{}), false},
		{operator.PathRaftAdmit, standing, admits(pattern, nil), false},
		{operator.PathRaftAdmit, standing, admits(one, &directory.AdmissionChange{Standing: true, Max: 3}), false},
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

// admits is the change that admits a node, or nodes of a pattern.
func admits(target string, admission *directory.AdmissionChange) directory.OperatorChange {
	return directory.OperatorChange{Action: directory.ActionAdmit, Target: target, Admission: admission}
}

// confirms is the change that confirms a step of the leader's clock.
func confirms(step string) directory.OperatorChange {
	return directory.OperatorChange{Action: directory.ActionConfirmClock, Target: step}
}

// The proof of an invitation binds its secret and its end: a leader that has the operator's request
// makes no other invitation of it.
//
// Requirement: SEC-012, MESH-024
func TestAProofOfAnInvitationBindsItsSecretAndEnd(t *testing.T) {
	own := spiffeid.RequireTrustDomainFromString("alpha.test")
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	secret, other := directory.Hash{1}, directory.Hash{2}
	request := &directory.OperatorRequest{
		Method: "POST", Target: operator.PathPeerInvite, ProofUntil: 1000,
		Body: []byte(`{"domain":"beta.test","life":60,"secret_hash":"` + secret.String() + `"}`),
	}

	for name, c := range map[string]struct {
		secret directory.Hash
		until  int64
		good   bool
	}{
		"as asked":       {secret, 1060, true},
		"earlier":        {secret, 900, true},
		"another secret": {other, 1060, false},
		"too long":       {secret, 1061, false},
	} {
		next := directory.Peering{Domain: beta, State: directory.PeeringPending, Secret: c.secret, Until: c.until}

		_, err := operator.CheckOrder(own, directory.OperatorChange{
			Action: directory.ActionPeering, Peering: &directory.PeeringChange{Next: next},
		}, request)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An operator's bundle of a peer replaces the present one and ends its refresh, unless the operator
// sets an endpoint too. A command with another bundle, or that goes on with the refresh, isn't the
// operator's.
//
// Requirement: TRUST-004, SEC-012
func TestAPinnedBundleEndsTheRefresh(t *testing.T) {
	own, beta := spiffeid.RequireTrustDomainFromString("alpha.test"), spiffeid.RequireTrustDomainFromString("beta.test")
	endpoint := directory.BundleEndpoint{URL: "https://ad.beta.test/bundle", Profile: directory.ProfileSPIFFE}
	was := directory.Peering{Domain: beta, State: directory.PeeringActive, Bundle: []byte(`{"keys":[]}`),
		Endpoint: endpoint, Mesh: true}
	pinned := `{"keys":[{}]}`

	pin, follow, stop := `"bundle":`+pinned, `"bundle_endpoint":{"url":"https://ad.beta.test/bundle",`+
		`"profile":"https_spiffe"}`, `"bundle_endpoint":{"url":"","profile":""}`
	none := directory.BundleEndpoint{}

	for name, c := range map[string]struct {
		body, bundle string
		endpoint     directory.BundleEndpoint
		good         bool
	}{
		"pinned":                 {pin, pinned, none, true},
		"the refresh goes on":    {pin, pinned, endpoint, false},
		"another bundle":         {pin, `{"keys":[{},{}]}`, none, false},
		"pinned with a refresh":  {pin + "," + follow, pinned, endpoint, true},
		"only a refresh":         {stop, string(was.Bundle), none, true},
		"a bundle was not asked": {stop, pinned, none, false},
	} {
		next := was
		next.Bundle, next.Endpoint = []byte(c.bundle), c.endpoint
		_, err := operator.CheckOrder(own, directory.OperatorChange{
			Action: directory.ActionPeering, Peering: &directory.PeeringChange{Was: &was, Next: next},
		}, &directory.OperatorRequest{Method: "POST", Target: operator.PathPeerChange,
			Body: []byte(`{"domain":"beta.test","verb":"set",` + c.body + `}`)})

		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
