package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/policy"
)

// peerings are the domain's agreements with its peers: they are made and changed by
// consensus, followed into the parts of this node that need them, and kept on disk for its
// next start.
type peerings struct {
	domain  spiffeid.TrustDomain
	cfg     *config.Config
	net     Network
	log     *slog.Logger
	source  *trust.Source
	bundles *trust.Bundles
	keyring *trust.Keyring
	policy  *policy.Policy
	last    []directory.Peering // of the last run; not changed after the start

	// Set before run, once these parts have started.
	store *consensus.Store
	mesh  func() *federation.Mesh
}

// follow applies the domain's agreements to the parts that don't read the log: the
// newest key document, and the bundles of peers.
func (ps *peerings) follow(ctx context.Context) {
	var keys *signed.KeyDocument
	peers := map[spiffeid.TrustDomain]directory.Peering{}

	var farewells sync.WaitGroup
	defer farewells.Wait()

	for {
		changed := ps.store.Agreed()
		if doc := ps.store.KeyDocument(); doc != nil && doc != keys {
			ps.keyring.SetOwn(doc)
			keys = doc
		}

		moved := false
		for _, peering := range ps.list() {
			if !peering.Equal(peers[peering.Domain]) {
				moved = true

				if left := ps.keep(peering); left && !peering.ByPeer {
					farewells.Go(func() { ps.sayFarewell(ctx, peering) })
				}

				peers[peering.Domain] = peering
			}
		}

		if moved {
			ps.policy.Reconsider() // a peer's identities see the exports to their domain
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// keep puts a peering's bundle in force and writes the peering to disk, so that a node
// that restarts knows its peers before it has read its domain's log. The bundle of a
// pending peer is not in force yet. It reports whether the peering has ended with this.
func (ps *peerings) keep(peering directory.Peering) (left bool) {
	file := filepath.Join(ps.dir(), peering.Domain.Name()+".json")
	if peering.State == directory.PeeringTerminated || peering.State == directory.PeeringPending {
		ps.bundles.Remove(peering.Domain)

		err := os.Remove(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			ps.log.Error("a former peer can't be removed from disk", "peer", peering.Domain.Name(), "err", err)
		}

		return err == nil && peering.State == directory.PeeringTerminated
	}

	if err := ps.bundles.Set(peering.Domain, peering.Bundle); err != nil {
		ps.log.Error("a peer's bundle is not usable; the last good one stays", "peer", peering.Domain.Name(), "err",
			err)

		return false
	}

	b, err := json.Marshal(peering)
	if err == nil {
		err = ReplaceFile(file, b, 0o600)
	}

	if err != nil {
		ps.log.Error("a peer can't be kept on disk", "peer", peering.Domain.Name(), "err", err)
	}

	return false
}

func (ps *peerings) dir() string { return filepath.Join(ps.cfg.Data, "peers") }

// load puts the bundles in force that keep wrote.
func (ps *peerings) load() error {
	if err := os.MkdirAll(ps.dir(), 0o700); err != nil {
		return err
	}

	peers, err := ReadPeers(ps.dir())
	if err != nil {
		return err
	}

	for _, peering := range peers {
		if err := ps.bundles.Set(peering.Domain, peering.Bundle); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(ps.dir(), peering.Domain.Name()+".json"), err)
		}

		ps.last = append(ps.last, peering)
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
		data, err := os.ReadFile(file)
		if err != nil {
			return peers, err
		}

		var peering directory.Peering
		if err := json.Unmarshal(data, &peering); err != nil ||
			peering.Domain.Name() != strings.TrimSuffix(filepath.Base(file), ".json") {
			return peers, fmt.Errorf("%s is damaged: remove it, and the domain's log tells it again: %w", file, err)
		}

		peers = append(peers, peering)
	}

	return peers, nil
}

// list returns the domain's peerings. Until the node has read its domain's log to the
// end it returns those of its last run: a peering that ended once and was made again
// would otherwise count as ended for a while, and the peer's records would be dropped.
func (ps *peerings) list() []directory.Peering {
	if !ps.store.Settled() {
		return ps.last
	}

	return ps.store.Peerings()
}

// inMesh reports whether id is a node of this or of an actively peered domain.
func (ps *peerings) inMesh(id spiffeid.ID) bool {
	if trust.IsNode(id, ps.domain) {
		return true
	}

	for _, p := range ps.list() {
		if p.State == directory.PeeringActive && trust.IsNode(id, p.Domain) {
			return true
		}
	}

	return false
}

// seedsOfPeer bounds the seeds of one peer. One reachable seed announces the others.
const seedsOfPeer = 8

// gossipSeeds returns the addresses at which the mesh can be joined: those of the
// configuration and those of the active peerings.
func (ps *peerings) gossipSeeds() []string {
	seeds := append([]string(nil), ps.cfg.Gossip.Seeds...)
	for _, p := range ps.list() {
		if p.State == directory.PeeringActive {
			seeds = append(seeds, p.Gossip[:min(len(p.Gossip), seedsOfPeer)]...)
		}
	}

	return seeds
}

// service returns the public URL of another domain's directory; empty if no
// peering names it.
func (ps *peerings) service(td spiffeid.TrustDomain) string {
	for _, p := range ps.list() {
		if p.Domain == td && len(p.Addresses) > 0 {
			return p.Addresses[0]
		}
	}

	return ""
}
