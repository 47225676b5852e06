package node

import (
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/config"
)

// The registrations from a followed source belong to an account of its own, which has
// this quota if limits.bytes_per_owner is smaller.
const (
	sourceAccounts = "/roster/source/*"
	bytesPerSource = 256 << 20
)

// consensusRules returns the quotas and the rules for names, which the leader proposes to
// the domain.
func consensusRules(cfg *config.Config) consensus.Rules {
	limits := &cfg.Limits
	rules := consensus.Rules{
		Hold:          uint32(cfg.Names.Hold / time.Second),
		PerOwner:      limits.RegistrationsPerOwner,
		BytesPerOwner: limits.BytesPerOwner,
		Registrations: limits.RegistrationsPerDomain,
		Bytes:         limits.BytesPerDomain,
	}

	for i := range limits.Callers {
		caller := &limits.Callers[i]

		if quota := caller.RegistrationsPerOwner; quota != nil {
			rules.Owners = append(rules.Owners, consensus.OwnerRule{Who: caller.Who, Most: uint64(*quota)})
		}

		if quota := caller.BytesPerOwner; quota != nil {
			rules.OwnersBytes = append(rules.OwnersBytes, consensus.OwnerRule{Who: caller.Who, Most: *quota})
		}
	}

	// The first matching rule applies, so the configured ones precede this one.
	sources, err := directory.ParseIdentityPattern(cfg.TrustDomain.IDString() + sourceAccounts)
	if err == nil && limits.BytesPerOwner > 0 && limits.BytesPerOwner < bytesPerSource {
		rules.OwnersBytes = append(rules.OwnersBytes, consensus.OwnerRule{Who: sources, Most: bytesPerSource})
	}

	return rules
}
