package node

import (
	"context"
	"slices"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/spelling"
)

// maxPreviewed bounds the agents that a preview names for each peer.
const maxPreviewed = 20

// PreviewPolicy says which registrations each peer would get no longer, or anew, and which
// domains the policy names that are no peers.
func (o operator) PreviewPolicy(ctx context.Context, text string) (wire.PolicyPreview, error) {
	next, err := o.nextPolicy(text)
	if err != nil {
		return wire.PolicyPreview{}, err
	}

	peerings := slices.DeleteFunc(o.store.Peerings(), func(p directory.Peering) bool {
		return p.State == directory.PeeringTerminated
	})

	changes, err := compareAll(ctx, o.view.Own(), peerings, o.policy, next)
	if err != nil {
		return wire.PolicyPreview{}, err
	}

	return wire.PolicyPreview{
		Version: o.policy.Version(),
		Peers:   changes,
		Unknown: unknownDomains(next.Domains(), peerings),
	}, nil
}

// compareAll returns the peers of which two policies decide differently.
func compareAll(
	ctx context.Context, own *index.Index, peerings []directory.Peering, now, next exporter,
) ([]wire.PeerPreview, error) {
	found := make([]wire.PeerPreview, len(peerings))
	for i, peering := range peerings {
		found[i].Domain = peering.Domain.Name()
	}

	for entry := range own.All() {
		// No policy exports such a registration.
		if entry.Unconfirmed || !entry.Visibility.Mesh && len(entry.Visibility.Peers) == 0 {
			continue
		}

		if err := ctx.Err(); err != nil {
			return nil, err
		}

		subject := subjectOf(entry)
		for i := range peerings {
			compareExports(&found[i], subject, exportTo(now, &peerings[i], subject),
				exportTo(next, &peerings[i], subject))
		}
	}

	return slices.DeleteFunc(found, func(change wire.PeerPreview) bool {
		return change.Withdrawn.Total+change.Redacted.Total+change.Added.Total == 0
	}), nil
}

// compareExports adds to change the difference of two decisions about a registration.
func compareExports(change *wire.PeerPreview, subject consensus.Subject, now, next export) {
	var to *wire.ChangedExports

	switch {
	case now.withheld == "" && next.withheld != "":
		to = &change.Withdrawn
	case now.withheld != "" && next.withheld == "":
		to = &change.Added
	case next.withheld == "" && isNarrower(subject.Document, now, next):
		to = &change.Redacted
	default:
		return
	}

	to.Total++
	if len(to.Agents) < maxPreviewed {
		to.Agents = append(to.Agents, subject.Agent)
	}
}

// isNarrower reports whether the next decision withholds a member that the present one shows.
func isNarrower(document directory.Document, now, next export) bool {
	if next.decision.Redaction.ShowsAll() {
		return false
	}

	withheld := withheldMembers(now.decision.Redaction, document)

	return slices.ContainsFunc(withheldMembers(next.decision.Redaction, document), func(name string) bool {
		return !slices.Contains(withheld, name)
	})
}

// unknownDomains returns the names that are no peers, each with the peer that was probably
// meant.
func unknownDomains(names []string, peerings []directory.Peering) []wire.UnknownDomain {
	unknown := []wire.UnknownDomain{}

	peers := make([]string, len(peerings))
	for i, peering := range peerings {
		peers[i] = peering.Domain.Name()
	}

	for _, name := range names {
		if !slices.Contains(peers, name) {
			unknown = append(unknown, wire.UnknownDomain{Domain: name, Near: spelling.Nearest(name, peers)})
		}
	}

	return unknown
}
