package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// attest keeps the node's signing key in the domain's key document: the key is
// attested anew by every SVID that the node gets, and once more well before the
// newest attestation's chain ends.
func (n *Node) attest(ctx context.Context) {
	for ctx.Err() == nil {
		rotated := n.source.Changed()
		wait := time.Second
		if err := n.attestOnce(ctx); err == nil {
			wait = time.Hour
		} else if ctx.Err() == nil {
			n.log.Warn("the signing key is not attested yet", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-rotated:
		case <-time.After(wait):
		}
	}
}

func (n *Node) attestOnce(ctx context.Context) error {
	statement, err := n.key.Attest(n.source.SVID(), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return n.store.Attest(ctx, directory.SigningKey{
		Public: n.key.Public(), Node: n.id, Attestations: []string{statement},
	})
}

// follow carries what the domain has agreed into the parts that don't read the
// log: the newest key document, and the bundles of peers.
func (n *Node) follow(ctx context.Context) {
	var keys *directory.KeyDocument
	peers := map[spiffeid.TrustDomain]directory.Peering{}
	for {
		changed := n.store.Changed()
		if doc := n.store.KeyDocument(); doc != nil && doc != keys {
			n.keyring.SetOwn(doc)
			keys = doc
		}
		for _, p := range n.store.Peerings() {
			if !p.Equal(peers[p.Domain]) {
				n.trustPeer(p)
				peers[p.Domain] = p
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// trustPeer takes a peering's bundle into use and keeps it on disk: a node that
// starts again knows its peers before its domain's log has been read.
func (n *Node) trustPeer(p directory.Peering) {
	file := filepath.Join(n.bundleDir(), p.Domain.Name()+".json")
	if p.State == directory.PeeringTerminated {
		n.bundles.Remove(p.Domain)
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Error("a former peer's bundle can't be removed from disk", "peer", p.Domain.Name(), "err", err)
		}
		return
	}
	if err := n.bundles.Set(p.Domain, p.Bundle); err != nil {
		n.log.Error("a peer's bundle is not usable; the last good one stays", "peer", p.Domain.Name(), "err", err)
		return
	}
	if err := writeFile(file, p.Bundle, 0o600); err != nil {
		n.log.Error("a peer's bundle can't be kept on disk", "peer", p.Domain.Name(), "err", err)
	}
}

func (n *Node) bundleDir() string { return filepath.Join(n.cfg.Data, "bundles") }

// loadPeers takes the bundles that trustPeer kept into use.
func (n *Node) loadPeers() error {
	if err := os.MkdirAll(n.bundleDir(), 0o700); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(n.bundleDir(), "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		td, err := spiffeid.TrustDomainFromString(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := n.bundles.LoadFile(td, file); err != nil {
			return err
		}
	}
	return nil
}
