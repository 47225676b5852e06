package state

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
)

// A key's signatures are still in circulation when its node rotates it, so the key
// documents of the next minutes list both keys (trust.md, "Signing keys"). A key that is
// revoked, or whose node leaves, is listed no longer.
const (
	keyOverlap = 5 * 60 * 1000 // milliseconds; pages and heads are renewed within three minutes
	maxRotated = 16            // of a domain, so that constant rotation cannot grow the document
)

// Bounds of signing keys.
const (
	maxAttestations = 4
	maxAttestation  = 16 << 10
	maxRevoked      = 1024 // the room of a key document
)

// A Keyring holds the signing keys of the domain's nodes and the key document that lists
// them.
type Keyring struct {
	history *History
	mesh    func() []spiffeid.TrustDomain // the domains that get the mesh stream
	formats func() signed.Formats         // the formats that all members read

	byNode  map[spiffeid.ID]signed.SigningKey
	rotated []rotatedKey        // in the order of their rotation
	revoked []string            // key ids; a snapshot has them in the key document
	issued  *signed.KeyDocument // nil until there is a key
}

// A rotatedKey is a key that its node has replaced.
type rotatedKey struct {
	signed.SigningKey
	until int64 // Unix milliseconds of committed time; listed until then
}

// A keySnapshot is a signing key in a snapshot.
type keySnapshot struct {
	Node         spiffeid.ID `cbor:"1,keyasint"`
	Public       []byte      `cbor:"2,keyasint"`
	Attestations []string    `cbor:"3,keyasint"`
	Until        int64       `cbor:"4,keyasint,omitempty"` // as in rotatedKey; 0 for a key in use
	Cosign       []byte      `cbor:"5,keyasint,omitempty"`
}

func newKeyring() Keyring {
	return Keyring{byNode: map[spiffeid.ID]signed.SigningKey{}}
}

func (k keySnapshot) key() signed.SigningKey {
	return signed.SigningKey{Public: k.Public, Node: k.Node, Cosign: k.Cosign, Attestations: k.Attestations}
}

// snapshot returns the items of a snapshot: the keys in use in the order of their nodes, and then the rotated ones.
func (k *Keyring) snapshot() (items []keySnapshot) {
	for _, node := range k.Nodes() {
		key := k.byNode[node]
		items = append(items, keySnapshot{key.Node, key.Public, key.Attestations, 0, key.Cosign})
	}

	for _, key := range k.rotated {
		items = append(items, keySnapshot{key.Node, key.Public, key.Attestations, key.until, key.Cosign})
	}

	return items
}

// Document returns the newest key document; nil until a key was attested. It must not be
// modified.
func (k *Keyring) Document() *signed.KeyDocument { return k.issued }

// Nodes returns the nodes that have a key, in the order of their names.
func (k *Keyring) Nodes() []spiffeid.ID {
	return slices.SortedFunc(maps.Keys(k.byNode), func(a, b spiffeid.ID) int {
		return strings.Compare(a.String(), b.String())
	})
}

// CheckAttest refuses a key that apply would ignore, and a key of another node, as on a
// copy of its disk: peers reject a key document that lists one key twice.
func (k *Keyring) CheckAttest(attest *Attest) error {
	bad := len(attest.Public) != 32 || len(attest.Attestations) == 0 || len(attest.Attestations) > maxAttestations ||
		len(attest.Cosign) != 0 && len(attest.Cosign) != 32
	for _, attestation := range attest.Attestations {
		bad = bad || len(attestation) > maxAttestation
	}

	if bad {
		return directory.Refuse(directory.BadRequest,
			"a signing key has 32 bytes and 1 to %d attestations of at most %d bytes", maxAttestations, maxAttestation)
	}

	if slices.Contains(k.revoked, signed.KeyID(attest.Public)) {
		return directory.Refuse(directory.Conflict, "the signing key is revoked; the node makes itself another: %w",
			signed.ErrKeyRevoked)
	}

	if node, known := k.owner(attest.Public); known && node != attest.Node {
		return directory.Refuse(directory.Conflict, "the signing key is that of %s: each node has one of its own", node)
	}

	return nil
}

// Changes reports whether a key would change the key document.
func (k *Keyring) Changes(attest *Attest) bool {
	old, known := k.byNode[attest.Node]

	return !known || !bytes.Equal(old.Public, attest.Public) || !bytes.Equal(old.Cosign, attest.Cosign) ||
		!slices.Equal(old.Attestations, attest.Attestations)
}

// CheckRevoke refuses a key id that is malformed or for which there is no room.
func (k *Keyring) CheckRevoke(revoke *Revoke) error {
	switch _, err := directory.ParseHash(revoke.Key); {
	case err != nil:
		return directory.Refuse(directory.BadRequest,
			"%.60q is no key id: it is a thumbprint, as \"roster keys list\" shows it", revoke.Key)
	case slices.Contains(k.revoked, revoke.Key):
		return nil
	case len(k.revoked) >= maxRevoked:
		return directory.Refuse(directory.Conflict,
			"%d keys are revoked, and a key document has room for no more", maxRevoked)
	}

	return nil
}

// attest replaces a node's signing key and attestations. A key that it replaces stays
// listed for a while.
func (k *Keyring) attest(c *Attest) {
	key := signed.SigningKey{Public: c.Public, Node: c.Node, Cosign: c.Cosign, Attestations: c.Attestations}
	if slices.Contains(k.revoked, key.KeyID()) {
		return
	}

	if !k.Changes(c) {
		return
	}

	k.rotate(c)
	k.byNode[c.Node] = key
	k.issue()
}

// revoke revokes a key, whether or not a node uses it now. With a key in use, its node's
// previous keys are revoked too, because a thief of the key may well have them.
func (k *Keyring) revoke(c *Revoke) {
	if slices.Contains(k.revoked, c.Key) || len(k.revoked) >= maxRevoked {
		return
	}

	// Issued documents share the list.
	k.revoked = append(slices.Clip(k.revoked), c.Key)
	k.unlist(func(old rotatedKey) bool {
		current, signs := k.byNode[old.Node]

		return old.KeyID() == c.Key || signs && current.KeyID() == c.Key
	})
	maps.DeleteFunc(k.byNode, func(_ spiffeid.ID, key signed.SigningKey) bool { return key.KeyID() == c.Key })
	k.issue()
}

// endCosigning removes all cosigning keys, because a new epoch begins: they are derived for one epoch,
// and the domain may have cosigned more by them than a restored state knows.
func (k *Keyring) endCosigning() {
	for node, key := range k.byNode {
		key.Cosign = nil
		k.byNode[node] = key
	}

	// Snapshots share the list.
	k.rotated = slices.Clone(k.rotated)
	for i := range k.rotated {
		k.rotated[i].Cosign = nil
	}
}

// drop removes the keys of a node and reports whether one was in use.
func (k *Keyring) drop(node spiffeid.ID) (signed bool) {
	_, signed = k.byNode[node]
	delete(k.byNode, node)
	k.unlist(func(old rotatedKey) bool { return old.Node == node })

	return signed
}

// reissue issues the key document again, unless another issue came first.
func (k *Keyring) reissue(c *Issue) {
	if k.issued != nil && k.issued.Seq == c.After {
		k.issue()
	}
}

// issueMesh issues the key document again if other domains get the mesh stream than it
// says.
func (k *Keyring) issueMesh() {
	if k.issued != nil && !slices.Equal(k.issued.Mesh, k.mesh()) {
		k.issue()
	}
}

// issueFormats issues the key document again if the members read other formats than it
// says.
func (k *Keyring) issueFormats() bool {
	if k.issued == nil || k.issued.Formats.Equal(k.formats()) {
		return false
	}

	k.issue()

	return true
}

// issue makes the domain's next key document. Its seq is its revision.
func (k *Keyring) issue() {
	doc := &signed.KeyDocument{
		Issuer:  k.history.domain,
		Epoch:   k.history.epoch,
		Seq:     k.history.next(),
		Expires: k.history.now/1000 + signed.KeyDocumentLifetime,
		Mesh:    k.mesh(),
		Revoked: k.revoked,
		Formats: k.formats(),
	}

	// The document is a leaf of the ledger, so its keys have one order on all members.
	for _, node := range k.Nodes() {
		doc.Keys = append(doc.Keys, k.byNode[node])
	}

	k.listRotated(doc)

	k.issued = doc
	k.history.log(ledger.Keys, doc.Payload())
}

// rotate records that a node replaces its key, if it is another key. A rotated key that
// is attested again, by any node, is in use once more.
func (k *Keyring) rotate(attest *Attest) {
	k.unlist(func(old rotatedKey) bool { return bytes.Equal(old.Public, attest.Public) })

	if old, ok := k.byNode[attest.Node]; ok && !bytes.Equal(old.Public, attest.Public) {
		k.rotated = append(slices.Clip(k.rotated), rotatedKey{old, k.history.now + keyOverlap})
		k.rotated = k.rotated[max(0, len(k.rotated)-maxRotated):]
	}
}

// listRotated adds the rotated keys whose overlap is not over to a key document, and
// forgets those for which there is no room.
func (k *Keyring) listRotated(doc *signed.KeyDocument) {
	k.unlist(func(old rotatedKey) bool { return old.until <= k.history.now })

	room := max(0, signed.MaxSigningKeys-len(doc.Keys))

	k.rotated = k.rotated[max(0, len(k.rotated)-room):]
	for _, old := range k.rotated {
		doc.Keys = append(doc.Keys, old.SigningKey)
	}
}

// unlist forgets rotated keys. The list is replaced and never modified, because
// snapshots share it.
func (k *Keyring) unlist(which func(rotatedKey) bool) {
	k.rotated = slices.DeleteFunc(slices.Clone(k.rotated), which)
}

// OverlapEnded reports whether the key document lists a key whose overlap is over at
// that time (Unix milliseconds).
func (k *Keyring) OverlapEnded(ms int64) bool {
	return slices.ContainsFunc(k.rotated, func(old rotatedKey) bool { return old.until <= ms })
}

// owner returns the node of a listed key.
func (k *Keyring) owner(public []byte) (spiffeid.ID, bool) {
	for node, key := range k.byNode {
		if bytes.Equal(key.Public, public) {
			return node, true
		}
	}

	i := slices.IndexFunc(k.rotated, func(old rotatedKey) bool { return bytes.Equal(old.Public, public) })
	if i < 0 {
		return spiffeid.ID{}, false
	}

	return k.rotated[i].Node, true
}
