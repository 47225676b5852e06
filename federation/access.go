package federation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// peers says which domains may send requests to this node, and for which streams, and selects the
// nodes to which this node sends requests.
type peers struct {
	cfg     *Config
	origins *replica.Set
}

func (ps peers) speaksTo(td spiffeid.TrustDomain) bool {
	if td == ps.cfg.Domain {
		return true
	}

	o := ps.origins.Get(td)

	return o != nil && o.Accepts()
}

// admits reports whether a node may send requests and gossip at present: a member of this domain, or a node
// of an active peer that the peer's newest key document lists. A node that its domain removes is a stranger at
// once, at a peer as soon as the peer has that document (rule S7).
func (ps peers) admits(id spiffeid.ID) bool {
	switch {
	case !isNode(id) || !ps.speaksTo(id.TrustDomain()):
		return false
	case id.TrustDomain() != ps.cfg.Domain:
		return ps.listsNode(id)
	}

	return ps.cfg.Member(id)
}

// listsNode reports whether the newest key document of a peer has a key of a node. Until this node has one,
// right after the peering began, it takes every node of the peer.
func (ps peers) listsNode(id spiffeid.ID) bool {
	doc, _, ok := ps.cfg.Keys.Keys(id.TrustDomain())

	return !ok || slices.ContainsFunc(doc.Keys, func(key signed.SigningKey) bool { return key.Node == id })
}

// newcomers are nodes of peers that their domains' key documents don't list.
type newcomers struct {
	mu   sync.Mutex
	seen map[spiffeid.TrustDomain]map[spiffeid.ID]time.Time // first, at most maxNewcomers of a domain
}

// Bounds of nodes that no key document lists: for how long one may ask for key documents, for how long it
// is remembered at least, and how many are of each domain.
const (
	greetTime    = time.Minute
	greetedFor   = time.Hour
	maxNewcomers = 64
)

// isNew reports whether a node was first seen less than greetTime ago. Without room for it, it is not new:
// a peer that makes up nodes takes no room of another's.
func (n *newcomers) isNew(id spiffeid.ID, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	nodes := n.seen[id.TrustDomain()]
	if first, known := nodes[id]; known {
		// Asking again doesn't extend the time.
		return now.Sub(first) < greetTime
	}

	if len(nodes) >= maxNewcomers {
		maps.DeleteFunc(nodes, func(_ spiffeid.ID, first time.Time) bool { return now.Sub(first) > greetedFor })
	}

	if len(nodes) >= maxNewcomers {
		return false
	}

	if nodes == nil {
		nodes = map[spiffeid.ID]time.Time{}

		if n.seen == nil {
			n.seen = map[spiffeid.TrustDomain]map[spiffeid.ID]time.Time{}
		}

		n.seen[id.TrustDomain()] = nodes
	}

	nodes[id] = now

	return true
}

// lists reports whether a domain may have the mesh stream of origin, according to the
// origin's own key document.
func (ps peers) lists(origin, td spiffeid.TrustDomain) bool {
	if td == ps.cfg.Domain || td == origin {
		return true
	}

	var doc *signed.KeyDocument
	if origin == ps.cfg.Domain {
		doc = ps.cfg.Source.KeyDocument()
	} else {
		doc, _, _ = ps.cfg.Keys.Keys(origin)
	}

	return doc != nil && slices.Contains(doc.Mesh, td)
}

// audiences returns the audiences of the own domain's streams: the mesh if its key document lists
// a domain, and each domain that may send requests at present.
func (ps peers) audiences() (all []directory.Audience) {
	if doc := ps.cfg.Source.KeyDocument(); doc != nil && len(doc.Mesh) > 0 {
		all = append(all, directory.Mesh)
	}

	for _, origin := range ps.origins.All() {
		if origin.Accepts() {
			all = append(all, directory.Only(origin.Domain))
		}
	}

	return all
}

// keysIssue returns the issue of a domain's key document that this node can serve; zero if there is no
// document.
func (ps peers) keysIssue(origin spiffeid.TrustDomain) directory.Position {
	doc, _, ok := ps.cfg.Keys.Keys(origin)
	if !ok {
		return directory.Position{}
	}

	return protocol.Issue(doc)
}

// unsigned returns a channel that fires after replica.KeysEvery if the own domain has agreed
// on a key document that this node doesn't sign yet, because no other signal reports that
// signature. Otherwise it returns nil.
func (ps peers) unsigned(origin spiffeid.TrustDomain) <-chan time.Time {
	if origin != ps.cfg.Domain {
		return nil
	}

	if doc := ps.cfg.Source.KeyDocument(); doc == nil || protocol.Issue(doc) == ps.keysIssue(origin) {
		return nil
	}

	return time.After(replica.KeysEvery)
}

func (ps peers) changedOf(origin spiffeid.TrustDomain) <-chan struct{} {
	if origin == ps.cfg.Domain {
		return ps.cfg.Source.Changed()
	}

	return ps.origins.Changed()
}

// siblings returns up to n other nodes of the own domain, in random order.
func (ps peers) siblings(n int) (some []protocol.Node) {
	some = ps.allSiblings()
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })

	return some[:min(n, len(some))]
}

// allSiblings returns the other nodes of the own domain.
func (ps peers) allSiblings() (all []protocol.Node) {
	for _, base := range ps.cfg.Siblings() {
		all = append(all, protocol.Node{Domain: ps.cfg.Domain, Base: base})
	}

	return all
}

// others returns one node of each other active peer, in random order.
func (ps peers) others(but spiffeid.TrustDomain) []protocol.Node {
	var all []protocol.Node
	for _, origin := range ps.origins.All() {
		if origin.Domain == but || !origin.Accepts() {
			continue
		}

		if n, ok := origin.Contacts.Node(&origin.Mesh); ok {
			all = append(all, n)
		}
	}

	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	return all
}

// holders returns the nodes that may have a stream's records, in the order of requests.
func (ps peers) holders(origin *replica.Origin, aud directory.Audience) []protocol.Node {
	all := append(ps.allSiblings(), origin.Contacts.Nodes()...)
	if aud == directory.Mesh {
		all = append(all, ps.others(origin.Domain)...)
	}

	return all
}

// The number of the domain's own nodes and of other nodes that are asked in one round. There
// are several, because a single one may also be cut off from the origin.
const (
	askSiblings = 1
	askOthers   = 3
)

// seedSiblings bounds the siblings asked at a seed. In a domain of common size these are all
// siblings, because a single one may lag behind the others.
const seedSiblings = 8
