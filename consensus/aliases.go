package consensus

import "github.com/roster-mesh/roster/consensus/state"

// The values of the replicated state that other packages use.
type (
	// Rules are what a domain's operator decides about names and their owners.
	Rules = state.Rules
	// An OwnerRule is how much each of some identities may own.
	OwnerRule = state.OwnerRule
	// Quotas are how much of its quotas the domain uses.
	Quotas = state.Quotas
	// Versions are the versions and formats that a release reads.
	Versions = state.Versions
	// Numbers are the versions and formats that a domain writes.
	Numbers = state.Numbers
)
