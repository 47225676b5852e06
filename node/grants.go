package node

import (
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
)

// policyBasis identifies the inputs of grants besides the replicated state: the built-in
// policy, and this build.
func policyBasis(policy string) directory.Hash {
	by := []string{policy}
	if info, ok := debug.ReadBuildInfo(); ok {
		by = append(by, info.Main.Version)

		// A build without the version of a module is identified by its commit.
		for _, s := range info.Settings {
			if strings.HasPrefix(s.Key, "vcs.") {
				by = append(by, s.Value)
			}
		}
	}

	return directory.HashOf([]byte(strings.Join(by, "\x00")))
}

// An exporter is the part of the policy that decides on exports.
type exporter interface {
	Export(peer spiffeid.TrustDomain, agent string, owner directory.Identity, v directory.Visibility,
		p *directory.Projection) directory.Decision
}

// grants asks policy about each peer to which the operator exports, within the peering's
// rules. A disclosure that is equal for all of them goes into the mesh's stream, because
// every reader of that sees all of it. If disclosures differ, each goes into the stream
// of its peer, and not into the mesh's (federation.md, "Grants"). If there is no peer
// yet, policy is asked about a domain without a name, because the first peer may read
// the mesh's stream before its contents are decided again.
func grants(policy exporter, peerings []directory.Peering, subject consensus.Subject) []directory.Grant {
	if !subject.Visibility.Mesh && len(subject.Visibility.Peers) == 0 {
		return nil
	}

	// alike is whether the mesh's stream may have the registration, which each domain can read.
	asked, alike := 0, subject.Visibility.Mesh

	var own []directory.Grant

	ask := func(peering *directory.Peering) {
		export := exportTo(policy, peering, subject)
		switch export.withheld {
		case wire.WithheldInactive, wire.WithheldNotExported:
			return
		case "":
			g := directory.GrantOf(directory.Only(peering.Domain), export.decision.Redaction, subject.Document)
			alike = alike && (len(own) == 0 || sameMembers(own[0], g))
			own = append(own, g)
		default:
			// Rules or policy withhold the registration from this peer, which would find it in the mesh's stream.
			alike = false
		}

		asked++
	}
	for i := range peerings {
		ask(&peerings[i])
	}

	if asked == 0 && subject.Visibility.Mesh {
		ask(&directory.Peering{State: directory.PeeringActive, Mesh: true})
	}

	if !alike {
		return own
	}

	g := own[0]
	g.Audience = directory.Mesh

	return []directory.Grant{g}
}

func sameMembers(a, b directory.Grant) bool {
	return a.All == b.All && slices.Equal(a.Reg, b.Reg) && slices.Equal(a.Doc, b.Doc)
}

// An export is the decision whether a peer gets a registration.
type export struct {
	withheld string             // why not, one of wire.Withheld…; empty if it is sent
	decision directory.Decision // policy's, if it was asked
}

// exportTo decides whether a peer gets a registration: the state of the peering, the
// operator's export, the registration's visibility, the rules of the peering and policy, in
// this order.
func exportTo(policy exporter, peering *directory.Peering, subject consensus.Subject) export {
	visibility := subject.Visibility
	projection := func() *directory.Projection { return subject.Projection }

	switch {
	case peering.State != directory.PeeringActive:
		return export{withheld: wire.WithheldInactive}
	case !peering.Mesh:
		return export{withheld: wire.WithheldNotExported}
	case !visibility.Mesh && len(visibility.Peers) == 0:
		return export{withheld: wire.WithheldVisibility}
	case !peering.Export.Admits(subject.Agent, subject.Document.Kind(), projection):
		return export{withheld: wire.WithheldRules}
	}

	decision := policy.Export(peering.Domain, subject.Agent, subject.Owner, visibility, subject.Projection)

	switch {
	case decision.Allow:
		return export{decision: decision}
	case !visibility.Mesh && !slices.Contains(visibility.Peers, peering.Domain):
		// Policy judges visibility as well. If that alone leaves the peer out, it is the reason.
		return export{wire.WithheldVisibility, decision}
	}

	return export{wire.WithheldPolicy, decision}
}

// subjectOf returns the subject of the grants of a registration of the domain.
func subjectOf(entry *directory.Entry) consensus.Subject {
	return consensus.Subject{
		RID: entry.RID, Agent: entry.Agent, Owner: entry.Owner, Document: entry.Document,
		Projection: entry.Projection(), Visibility: entry.Visibility,
	}
}

// audience returns, for each domain with a peering, whether it gets a registration of the
// domain, and by which rule.
func audience(policy exporter, peerings []directory.Peering, entry *directory.Entry) []wire.Recipient {
	recipients := []wire.Recipient{}

	for i := range peerings {
		peering := &peerings[i]
		if peering.State == directory.PeeringTerminated {
			continue
		}

		found := exportTo(policy, peering, subjectOf(entry))

		// A registration that was restored from a backup is exported once its owner has refreshed it.
		if found.withheld == "" && entry.Unconfirmed {
			found = export{withheld: wire.WithheldUnconfirmed}
		}

		recipient := wire.Recipient{
			Domain:   peering.Domain.Name(),
			Sent:     found.withheld == "",
			Reason:   found.withheld,
			Policies: slices.Sorted(slices.Values(found.decision.Policies)),
		}
		if recipient.Sent {
			recipient.Withheld = withheldMembers(found.decision.Redaction, entry.Document)
		}

		recipients = append(recipients, recipient)
	}

	return recipients
}

// withheldMembers returns the members of a registration that a Redaction withholds.
func withheldMembers(redaction directory.Redaction, document directory.Document) (names []string) {
	grant := directory.GrantOf(directory.Mesh, redaction, document)
	for _, member := range document.Members() {
		if !grant.Allows("doc", member.Name) {
			names = append(names, member.Name)
		}
	}

	if !grant.Allows("reg", directory.MemberOwner) {
		names = append(names, "provenance.registrant")
	}

	return names
}

// A registrar is the part of the policy that decides on registrations.
type registrar interface {
	Inside(owner directory.Identity) bool
	Register(owner directory.Identity, agent string, p *directory.Projection, v directory.Visibility) directory.Decision
	OnBehalf(tool, owner directory.Identity, agent string, p *directory.Projection,
		v directory.Visibility) directory.Decision
}

// permitter returns the decision on proposals that other members bring, as access.Guard decides on requests at this
// node.
func permitter(policy registrar) func(consensus.Proposal) error {
	return func(p consensus.Proposal) error {
		switch {
		case !policy.Inside(p.Owner):
			return directory.Refuse(directory.OwnerOutsideDomain,
				"%s is no identity of this domain, so it can't own a registration here", p.Owner)
		case p.Caller != p.Owner && !policy.OnBehalf(p.Caller, p.Owner, p.Agent, p.Projection, p.Visibility).Allow:
			return directory.Refuse(directory.Forbidden, "%s may not register %q on behalf of %s", p.Caller, p.Agent,
				p.Owner)
		case !policy.Register(p.Owner, p.Agent, p.Projection, p.Visibility).Allow:
			return directory.Refuse(directory.Forbidden, "%s may not register %q with visibility %s", p.Owner, p.Agent,
				p.Visibility)
		}

		return nil
	}
}
