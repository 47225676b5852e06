package node

import (
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
)

// policyBasis identifies the inputs of grants besides the replicated state: the built-in
// policy, and this build.
func policyBasis(policy string) directory.Hash {
	by := []string{policy}
	if info, ok := debug.ReadBuildInfo(); ok {
		by = append(by, info.Main.Version)
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

	asked, alike := 0, subject.Visibility.Mesh

	var own []directory.Grant

	ask := func(td spiffeid.TrustDomain, rules *directory.PeerRules) {
		asked++

		projection := func() *directory.Projection { return subject.Projection }
		if !rules.Admits(subject.Agent, subject.Document.Kind(), projection) {
			alike = false
			return
		}

		decision := policy.Export(td, subject.Agent, subject.Owner, subject.Visibility, subject.Projection)
		if !decision.Allow {
			alike = false
			return
		}

		g := directory.GrantOf(directory.Only(td), decision.Redaction, subject.Document)
		alike = alike && (len(own) == 0 || sameMembers(own[0], g))
		own = append(own, g)
	}
	for _, p := range peerings {
		if p.State == directory.PeeringActive && p.Mesh {
			ask(p.Domain, &p.Export)
		}
	}

	if asked == 0 && subject.Visibility.Mesh {
		ask(spiffeid.TrustDomain{}, &directory.PeerRules{})
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
