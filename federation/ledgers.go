package federation

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/mirror"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Intervals at which the ledger of another domain is followed: soon after its position has
// moved, and else now and then, because an entry may come without a change of a stream.
const (
	followSoon   = 2 * time.Second
	followAnyway = 20 * time.Second
	followWithin = 5 * time.Minute // a first time, of 10^6 entries
)

// openMirrors opens the copies of other domains' ledgers.
func (m *Mesh) openMirrors() *mirror.Mirrors {
	return mirror.Open(mirror.Config{
		Dir:    filepath.Join(m.cfg.Dir, "ledgers"),
		Panics: m.cfg.Panics,
		Get: func(ctx context.Context, node protocol.Node, path string, limit int) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
			defer cancel()

			return m.client.Get(ctx, node, path, nil, limit)
		},
		Bytes: func(domain spiffeid.TrustDomain) uint64 {
			// Without an origin nothing is followed.
			if origin := m.origins.Get(domain); origin != nil {
				return origin.Quota().Bytes
			}

			return 1
		},
		Keys: m.cfg.LogKeys, WitnessKeys: m.cfg.WitnessKeys, Forked: m.Contradicts,
	})
}

// followLedger follows an origin's ledger until ctx ends.
func (m *Mesh) followLedger(ctx context.Context, origin *replica.Origin) {
	var (
		last   directory.Position
		behind time.Duration
		b      = newBackoff()
	)

	for wait(ctx, nil, m.cfg.Stretch.of(followSoon)) {
		at, known := origin.Position()
		if behind += followSoon; !known || at == last && behind < followAnyway {
			continue
		}

		timed, cancel := context.WithTimeout(ctx, followWithin)

		err := m.mirrors.Follow(timed, origin.Domain, at.Epoch, origin.Contacts.Nodes())
		if err == nil {
			err = m.compareLedger(timed, origin.Domain, at.Epoch)
		}

		cancel()

		if errors.Is(err, mirror.ErrDiscontinued) { // an alarm, and no conviction
			m.cfg.Logger.Error("the ledger of a peer differs from the one that it has shown before, or to another peer",
				"origin", origin.Domain.Name(), "err", err)
		}

		if err != nil {
			m.cfg.Logger.Debug("following a ledger failed", "origin", origin.Domain.Name(), "err", err)
			wait(ctx, nil, m.cfg.Stretch.of(b.NextBackOff()))

			continue
		}

		// Noted only after a success, so that a failed attempt is repeated without a change of the position.
		last, behind = at, 0

		b.Reset()
	}
}

// compareLedger compares the copy of an origin's ledger with what this domain has cosigned of it, and with the copies
// of another node of the domain and of a node of another peer: the origin may show each of them another ledger. The
// nodes are asked by chance, one of each kind each time: all of them compare.
func (m *Mesh) compareLedger(ctx context.Context, origin spiffeid.TrustDomain, epoch uint64) error {
	notes := map[protocol.Node]string{ // by whose
		{Domain: m.cfg.Domain, Base: "this domain's witness"}: m.cfg.Cosigned(directory.LogName(origin, epoch)),
	}

	asked := m.peers.siblings(1)
	if others := m.peers.others(origin); len(others) > 0 {
		asked = append(asked, others[0])
	}

	for _, node := range asked {
		note, err := m.askCheckpoint(ctx, origin, node)
		if err != nil { // a node that follows no ledger, or is away, says nothing against it
			m.cfg.Logger.Debug("asking for a checkpoint failed", "origin", origin.Name(), "node", node.Base, "err", err)
		}

		notes[node] = note
	}

	var found error

	for by, note := range notes {
		if note == "" {
			continue
		}

		err := m.cfg.Panics.Run(contain.Ledger, func() error { return m.mirrors.Compare(origin, epoch, by, note) })

		switch {
		case errors.Is(err, mirror.ErrDiscontinued):
			found = errors.Join(found, fmt.Errorf("that of %s: %w", by.Base, err))
		case err != nil:
			m.cfg.Logger.Debug("comparing a ledger failed", "origin", origin.Name(), "with", by.Base, "err", err)
		}
	}

	return found
}

// askCheckpoint asks a node for the checkpoint to which it has followed an origin's ledger.
func (m *Mesh) askCheckpoint(ctx context.Context, origin spiffeid.TrustDomain, node protocol.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	return m.client.Get(ctx, node, protocol.PathCheckpoint, url.Values{"origin": {origin.Name()}}, checkpoint.MaxNote)
}

// Logged returns where the statement of another domain's registration is in that domain's ledger,
// as far as this node has followed it.
func (m *Mesh) Logged(e *directory.Entry) (at directory.Inclusion, ok bool) {
	if e.Received == nil {
		return at, false
	}

	at = directory.Inclusion{Index: e.Received.Leaf, At: e.UpdatedAt / 1000}
	if origin := m.origins.Get(e.Origin); origin != nil {
		at.Unconfirmed = origin.IsUnconfirmed(e, time.Now())
	}

	if at.Log, ok = m.mirrors.Includes(e.Origin, at.Index, e.Received.H); ok {
		at.Witnesses = m.mirrors.Witnesses(e.Origin, at.Index)
	}

	return at, ok
}

// Inclusion returns the checkpoint up to which this node has followed a domain's ledger of an epoch,
// and the path from an entry to its root.
func (m *Mesh) Inclusion(origin spiffeid.TrustDomain, epoch, index uint64) (
	note string, path []directory.Hash, err error,
) {
	return m.mirrors.Prove(origin, epoch, index)
}
