package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// follow carries what the domain has agreed into the parts that don't read the
// log: the newest key document, and the bundles of peers.
func (n *Node) follow(ctx context.Context) {
	var keys *signed.KeyDocument
	peers := map[spiffeid.TrustDomain]directory.Peering{}
	var farewells sync.WaitGroup
	defer farewells.Wait()
	for {
		changed := n.store.Agreed()
		if doc := n.store.KeyDocument(); doc != nil && doc != keys {
			n.keyring.SetOwn(doc)
			keys = doc
		}
		moved := false
		for _, p := range n.peerings() {
			if !p.Equal(peers[p.Domain]) {
				moved = true
				if left := n.keepPeer(p); left && !p.ByPeer {
					farewells.Go(func() { n.sayFarewell(ctx, p) })
				}
				peers[p.Domain] = p
			}
		}
		if moved {
			n.policy.Reconsider() // a peer's identities see what is exported to their domain
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// keepPeer takes a peering's bundle into use and keeps the peering on disk: a
// node that starts again knows its peers before its domain's log has been read.
// Nobody of a pending peer is believed yet. It reports whether the node leaves a
// peer with this.
func (n *Node) keepPeer(p directory.Peering) (left bool) {
	file := filepath.Join(n.peerDir(), p.Domain.Name()+".json")
	if p.State == directory.PeeringTerminated || p.State == directory.PeeringPending {
		n.bundles.Remove(p.Domain)
		err := os.Remove(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Error("a former peer can't be removed from disk", "peer", p.Domain.Name(), "err", err)
		}
		return err == nil && p.State == directory.PeeringTerminated
	}
	if err := n.bundles.Set(p.Domain, p.Bundle); err != nil {
		n.log.Error("a peer's bundle is not usable; the last good one stays", "peer", p.Domain.Name(), "err", err)
		return false
	}
	b, err := json.Marshal(p)
	if err == nil {
		err = ReplaceFile(file, b, 0o600)
	}
	if err != nil {
		n.log.Error("a peer can't be kept on disk", "peer", p.Domain.Name(), "err", err)
	}
	return false
}

func (n *Node) peerDir() string { return filepath.Join(n.cfg.Data, "peers") }

// loadPeers takes the bundles that keepPeer kept into use.
func (n *Node) loadPeers() error {
	if err := os.MkdirAll(n.peerDir(), 0o700); err != nil {
		return err
	}
	peers, err := ReadPeers(n.peerDir())
	if err != nil {
		return err
	}
	for _, p := range peers {
		if err := n.bundles.Set(p.Domain, p.Bundle); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(n.peerDir(), p.Domain.Name()+".json"), err)
		}
		n.lastPeers = append(n.lastPeers, p)
	}
	return nil
}

// ReadPeers reads the peerings that a node keeps on disk, in the directory peers of its
// data. Those before a damaged file are returned with the error.
func ReadPeers(dir string) (peers []directory.Peering, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return peers, err
		}
		var p directory.Peering
		if err := json.Unmarshal(b, &p); err != nil || p.Domain.Name() != strings.TrimSuffix(filepath.Base(file), ".json") {
			return peers, fmt.Errorf("%s is damaged: remove it, and the domain's log tells it again: %w", file, err)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// peerings returns the domain's peerings; those that were known when the node
// last ran until it has read its domain's log to the end. On the way there a
// peering that was ended once, and made again, would pass for ended, and all that
// the peer had told would be forgotten.
func (n *Node) peerings() []directory.Peering {
	if !n.store.Settled() {
		return n.lastPeers
	}
	return n.store.Peerings()
}

// inMesh reports whether id is a node of this or of an actively peered domain.
func (n *Node) inMesh(id spiffeid.ID) bool {
	if trust.IsNode(id, n.cfg.TrustDomain) {
		return true
	}
	for _, p := range n.peerings() {
		if p.State == directory.PeeringActive && trust.IsNode(id, p.Domain) {
			return true
		}
	}
	return false
}

// seedsOfPeer bounds the seeds of one peer: one that is there tells of the others.
const seedsOfPeer = 8

// gossipSeeds are where the mesh can be joined: what the configuration names
// and what peers' peerings do.
func (n *Node) gossipSeeds() []string {
	seeds := append([]string(nil), n.cfg.Gossip.Seeds...)
	for _, p := range n.peerings() {
		if p.State == directory.PeeringActive {
			seeds = append(seeds, p.Gossip[:min(len(p.Gossip), seedsOfPeer)]...)
		}
	}
	return seeds
}

// service returns the public URL of another domain's directory; empty where no
// peering names it.
func (n *Node) service(td spiffeid.TrustDomain) string {
	for _, p := range n.peerings() {
		if p.Domain == td && len(p.Addresses) > 0 {
			return p.Addresses[0]
		}
	}
	return ""
}
