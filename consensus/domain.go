package consensus

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// begin begins the domain's history, or a new epoch of one that was restored (rule
// P1): leaf 0 of the ledger says of which epoch it is and what came before. Any
// other beginning changes nothing.
func (s *state) begin(c *epoch) {
	if s.epoch != 0 && s.sealed == "" || c.Epoch <= s.epoch {
		return
	}
	old, size, root := "", s.ledger.size, s.ledger.root()
	if s.epoch != 0 {
		old = logOrigin(s.domain, s.epoch)
	}
	payload := epochPayload(s.domain, c.Epoch, old, size, root, s.restored, c.Reason)
	s.epoch, s.sealed, s.ledger = c.Epoch, "", frontier{}
	s.restored = 0
	s.next()
	s.ledger.append(leafEpoch, payload)
	if len(s.keys) > 0 {
		s.issue()
	}
}

// logOrigin is the name of an epoch's ledger.
func logOrigin(domain spiffeid.TrustDomain, epoch uint64) string {
	return fmt.Sprintf("%s/roster/%d", domain.Name(), epoch)
}

// epochPayload is {v, iss, epoch, old, size, root, rev, reason}: old is the log
// origin of the epoch before, empty for the first, with the size and root that
// its ledger had; rev is the revision that was restored, 0 for the first.
func epochPayload(
	domain spiffeid.TrustDomain, epoch uint64, old string, size uint64, root directory.Hash, rev uint64, reason string,
) []byte {
	b := directory.AppendUint([]byte{'{'}, "v", 1)
	b = directory.AppendText(b, "iss", domain.IDString())
	b = directory.AppendUint(b, "epoch", epoch)
	b = directory.AppendText(b, "old", old)
	b = directory.AppendUint(b, "size", size)
	b = directory.AppendText(b, "root", root.String())
	b = directory.AppendUint(b, "rev", rev)
	return append(directory.AppendText(b, "reason", reason), '}')
}

// peer agrees something with another domain. policy moves, so that no grant that
// was asked for before is taken after.
func (s *state) peer(c *peer) {
	p := directory.Peering(*c)
	old, known := s.peerings[p.Domain]
	if known && old.Equal(p) {
		return
	}
	s.peerings[p.Domain] = p
	s.policy = s.next()
	if s.issued != nil && !slices.Equal(s.issued.Mesh, s.mesh()) {
		s.issue()
	}
}

// amend agrees something with another domain, unless another change came first.
func (s *state) amend(c *amend) error {
	now, known := s.peerings[c.Peer.Domain]
	if !known {
		now.Domain = c.Peer.Domain
	}
	if !now.Equal(directory.Peering(c.Was)) {
		return directory.Refuse(directory.Conflict, "the peering with %s was changed by another meanwhile; nothing was changed by you", c.Peer.Domain.Name())
	}
	s.peer(&c.Peer)
	return nil
}

// rebundle puts a peer's new bundle in the place of the one that it was compared
// with. Who speaks for the peer has nothing to do with what it may have: policy
// stays where it is, and no grant is asked for anew.
func (s *state) rebundle(c *rebundle) {
	p, known := s.peerings[c.Domain]
	live := p.State == directory.PeeringActive || p.State == directory.PeeringFrozen
	if !known || !live || directory.HashOf(p.Bundle) != c.Held || bytes.Equal(p.Bundle, c.Bundle) {
		return
	}
	p.Bundle = c.Bundle
	s.peerings[c.Domain] = p
	s.next()
}

// redeem lets an invitation be used once: whoever shows its secret first is the
// peer. Its own repetition is no second use.
func (s *state) redeem(c *redeem) error {
	p, known := s.peerings[c.Peer.Domain]
	next := c.Peer
	next.Secret, next.Until, next.Mesh = c.Secret, p.Until, p.Mesh // what the peer may not say
	next.Export, next.Import = p.Export, p.Import
	switch {
	case !known || p.Secret != c.Secret || c.Secret.IsZero():
	case p.State == directory.PeeringPending && s.now/1000 < p.Until:
		s.peer(&next)
		return nil
	case p.State == directory.PeeringActive && bytes.Equal(p.Bundle, next.Bundle):
		return nil
	}
	return directory.Refuse(directory.Forbidden, "the invitation is not one of this domain's for %s, or it was used, or it has ended", c.Peer.Domain.Name())
}

// mesh returns the domains that may have the mesh stream, sorted by name.
func (s *state) mesh() []spiffeid.TrustDomain {
	var list []spiffeid.TrustDomain
	for td, p := range s.peerings {
		if p.State == directory.PeeringActive && p.Mesh {
			list = append(list, td)
		}
	}
	slices.SortFunc(list, func(a, b spiffeid.TrustDomain) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// attest takes a node's signing key with its newest attestations in the place of
// what the node had before; another key than that is listed beside it for a while.
func (s *state) attest(c *attest) {
	key := directory.SigningKey{Public: c.Public, Node: c.Node, Attestations: c.Attestations}
	if slices.Contains(s.revoked, key.KeyID()) {
		return
	}
	if old, ok := s.keys[c.Node]; ok && old.Public.Equal(key.Public) && slices.Equal(old.Attestations, key.Attestations) {
		return
	}
	s.rotate(c)
	s.keys[c.Node] = key
	s.issue()
}

// revoke takes a key back, whether a node has it now or had it. With a key that signs
// go those that its node had before: whoever has that may well have them.
func (s *state) revoke(c *revoke) {
	if slices.Contains(s.revoked, c.Key) || len(s.revoked) >= maxRevoked {
		return
	}
	s.revoked = append(slices.Clip(s.revoked), c.Key)
	s.unlist(func(k rotatedKey) bool {
		now, signs := s.keys[k.Node]
		return k.KeyID() == c.Key || signs && now.KeyID() == c.Key
	})
	maps.DeleteFunc(s.keys, func(_ spiffeid.ID, k directory.SigningKey) bool { return k.KeyID() == c.Key })
	s.issue()
}

// reissue issues the key document again, unless another issue came first.
func (s *state) reissue(c *issue) {
	if s.issued != nil && s.issued.Seq == c.After {
		s.issue()
	}
}

// issueFormats issues the key document again if the members read other formats by
// now than it says.
func (s *state) issueFormats() bool {
	if s.issued == nil || s.issued.Formats.Equal(s.readable()) {
		return false
	}

	s.issue()

	return true
}

// issue makes the domain's next key document. Its seq is its revision.
func (s *state) issue() {
	doc := &directory.KeyDocument{
		Issuer: s.domain, Epoch: s.epoch, Seq: s.next(),
		Expires: s.now/1000 + directory.KeyDocumentLifetime, Mesh: s.mesh(), Revoked: s.revoked, Formats: s.readable(),
	}
	nodes := slices.SortedFunc(maps.Keys(s.keys), func(a, b spiffeid.ID) int { return strings.Compare(a.String(), b.String()) })
	for _, node := range nodes {
		doc.Keys = append(doc.Keys, s.keys[node])
	}
	s.listRotated(doc)
	s.issued = doc
	s.ledger.append(leafKeys, doc.Payload())
}
