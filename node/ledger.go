package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/trust"
)

// ledgers serves the domain's logs, one for each epoch, signed by this node.
type ledgers struct {
	domain  spiffeid.TrustDomain
	url     string // the domain's public URL
	store   *consensus.Store
	keyring *trust.Keyring
	mesh    *federation.Mesh

	witnesses *witnesses
}

func (n *Node) ledgers() ledgers {
	return ledgers{n.cfg.TrustDomain, n.cfg.PublicURL, n.store, n.keyring, n.mesh, &n.witnessing.witnesses}
}

// logged returns where a registration's statement is in the ledger of its origin, as far as this
// node has verified it.
func (n *Node) logged(e *directory.Entry) (directory.Inclusion, bool) {
	if e.Origin != n.cfg.TrustDomain {
		return n.mesh.Logged(e)
	}

	at, logged := n.store.Logs.Included(e)
	n.witnessing.of(&at)

	return at, logged
}

// origin is the name of an epoch's log, and of the keys that sign for it.
func (l ledgers) origin(epoch uint64) string { return directory.LogName(l.domain, epoch) }

// Epoch implements api/ledger.Log.
func (l ledgers) Epoch() uint64 {
	epoch, _ := l.store.Logs.Tree()
	return epoch
}

// Checkpoint implements api/ledger.Log. A tree whose entries this node lacks is not signed.
func (l ledgers) Checkpoint(epoch uint64) (string, error) {
	log, tree, err := l.store.Logs.Log(epoch)
	if err != nil {
		return "", err
	}

	if _, missing := log.Missing(); missing {
		return "", unavailableLedger(ledger.ErrIncomplete)
	}

	tree, cosignatures := l.shown(epoch, tree, 0)
	note, err := l.sign(checkpoint.Checkpoint{Origin: l.origin(epoch), Size: tree.Size, Root: tree.Root})

	return note + cosignatures, err
}

// shownFor is how long the checkpoint that witnesses have cosigned is shown in place of a newer one.
const shownFor = time.Minute

// shown returns the tree of the checkpoint that is shown of a log, and its cosignatures: the newest one
// that is cosigned, unless that is old or smaller than least.
func (l ledgers) shown(epoch uint64, tree ledger.Tree, least uint64) (shown ledger.Tree, cosignatures string) {
	own := l.store.Cosignatures()

	switch {
	case own.Epoch != epoch || own.Size < least || own.Size > tree.Size:
		// The cosigned tree is of another log, lacks the entry, or is ahead of this node's log.
		return tree, ""
	case own.Size < tree.Size && time.Since(time.Unix(own.At, 0)) > shownFor:
		return tree, ""
	}

	return ledger.Tree{Size: own.Size, Root: own.Root}, own.Lines
}

// sign signs a checkpoint by this node's key.
func (l ledgers) sign(c checkpoint.Checkpoint) (string, error) {
	note, err := l.keyring.SignCheckpoint(c)
	if err != nil {
		return "", directory.Refuse(directory.Unavailable, "this node can't sign at the moment: %w", err)
	}

	return note, nil
}

// Start implements api/ledger.Log.
func (l ledgers) Start(epoch uint64) ([]byte, error) { return l.store.Logs.Start(epoch) }

// Policy implements api/ledger.Log: the keys of the key document, each of which signs
// checkpoints, and the witnesses.
func (l ledgers) Policy(epoch uint64) (string, error) {
	if _, _, err := l.store.Logs.Log(epoch); err != nil {
		return "", err
	}

	doc := l.store.KeyDocument()
	if doc == nil {
		return "", directory.Refuse(directory.Unavailable, "the domain has no key document yet; try again later")
	}

	policy := checkpoint.Policy{}

	for _, key := range doc.Keys {
		if _, err := doc.Key(key.KeyID()); err == nil {
			vkey := checkpoint.VerifierKey{Name: l.origin(epoch), Type: checkpoint.TypeLog, Key: key.Public}
			policy.Logs = append(policy.Logs, checkpoint.PolicyLog{
				Key: vkey, URL: fmt.Sprintf("%s/log/%d", l.url, epoch),
			})
		}
	}

	l.witnesses.amend(&policy)

	return policy.Text(), nil
}

// Tile implements api/ledger.Log.
func (l ledgers) Tile(epoch uint64, level int, n uint64, width int) ([]byte, error) {
	log, tree, err := l.store.Logs.Log(epoch)
	if err != nil {
		return nil, err
	}

	tile, err := log.Tile(tree, level, n, width)

	return tile, unavailableLedger(err)
}

// Bundle implements api/ledger.Log.
func (l ledgers) Bundle(epoch, n uint64, width int) ([]byte, error) {
	log, tree, err := l.store.Logs.Log(epoch)
	if err != nil {
		return nil, err
	}

	bundle, err := log.Bundle(tree, n, width)

	return bundle, unavailableLedger(err)
}

// unavailableLedger is the problem of an error of a log on disk.
func unavailableLedger(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNoTile):
		return directory.Refuse(directory.NotFound, "%w", err)
	default:
		return directory.Refuse(directory.Unavailable, "%w; ask another node", err)
	}
}

// inclusion returns a checkpoint of a domain's log of an epoch, and the path from an entry to its
// root. The error is directory.NotFound where this node doesn't have that log.
func (l ledgers) inclusion(origin spiffeid.TrustDomain, epoch, index uint64) (
	note string, path []directory.Hash, err error,
) {
	if origin != l.domain {
		note, path, err = l.mesh.Inclusion(origin, epoch, index)
		return note, path, unavailableLedger(err)
	}

	note, paths, err := l.inclusions(epoch, index)
	if err != nil {
		return "", nil, err
	}

	return note, paths[0], nil
}

// inclusions returns a checkpoint of this domain's log of an epoch, and the paths from entries to its root.
func (l ledgers) inclusions(epoch uint64, indexes ...uint64) (note string, paths [][]directory.Hash, err error) {
	log, tree, err := l.store.Logs.Log(epoch)
	if err != nil {
		return "", nil, err
	}

	// All paths lead to one root, so the checkpoint must cover the last of the entries.
	least := uint64(0)
	for _, index := range indexes {
		least = max(least, index+1)
	}

	tree, cosignatures := l.shown(epoch, tree, least)

	for _, index := range indexes {
		path, err := log.Prove(tree, index)
		if err != nil {
			return "", nil, unavailableLedger(err)
		}

		paths = append(paths, path)
	}

	note, err = l.sign(checkpoint.Checkpoint{Origin: l.origin(epoch), Size: tree.Size, Root: tree.Root})

	return note + cosignatures, paths, err
}

// past returns the history of a registration before a place, or its end. Of this domain's it has the statements that
// are kept; of another domain's, the present one, which this node has verified.
func (n *Node) past(origin spiffeid.TrustDomain, rid directory.RID, before directory.Position) (*directory.Past,
	error,
) {
	if origin != n.cfg.TrustDomain {
		return n.foreignPast(origin, rid)
	}

	statements, earlier, complete, err := n.store.Logs.History(rid, before)
	if err != nil {
		return nil, err
	}

	if len(statements) == 0 {
		return nil, directory.Refuse(directory.NotFound, "nothing was stated of registration %s", rid)
	}

	past := &directory.Past{Complete: complete, Erased: n.store.Logs.IsErased(rid)}
	if earlier {
		past.Earlier = directory.Position{Epoch: statements[0].Epoch, Revision: statements[0].Index}
	}

	for i := range statements {
		st := &statements[i]
		stated := directory.PastStatement{
			Inclusion: directory.Inclusion{Log: directory.LogName(origin, st.Epoch), Index: st.Index, At: st.At},
			H:         st.H, Payload: st.Payload, Entry: st.Entry,
		}

		if st.Entry != nil {
			stated.Revision = st.Entry.Statement
		}

		past.Statements = append(past.Statements, stated)
	}

	if past.Before, past.After, err = n.store.Logs.Around(statements[0].Agent, rid); err != nil {
		return nil, err
	}

	n.provePast(past, statements)

	return past, nil
}

// provePast adds the proofs of inclusion, as far as this node has the ledgers of their epochs.
func (n *Node) provePast(past *directory.Past, statements []consensus.Statement) {
	for from, to := 0, 0; from < len(statements); from = to {
		var indexes []uint64

		epoch := statements[from].Epoch
		for ; to < len(statements) && statements[to].Epoch == epoch; to++ {
			indexes = append(indexes, statements[to].Index)
		}

		note, paths, err := n.ledgers().inclusions(epoch, indexes...)
		if err != nil {
			// The statements hold without proofs, so a ledger that this node lacks must not hide them.
			continue
		}

		past.Checkpoints = append(past.Checkpoints, note)
		for i, path := range paths {
			past.Statements[from+i].Path = path
		}
	}
}

// foreignPast returns the present statement of a registration of another domain.
func (n *Node) foreignPast(origin spiffeid.TrustDomain, rid directory.RID) (*directory.Past, error) {
	entry, ok := n.view.Get(origin, rid)
	if !ok {
		return nil, directory.Refuse(directory.NotFound, "this node holds no such registration")
	}

	past := &directory.Past{}
	stated := directory.PastStatement{H: entry.Received.H, Revision: entry.Statement, Entry: entry}

	stated.Inclusion, ok = n.mesh.Logged(entry)
	at, _ := n.mesh.Position(origin)

	// Without its record here, the statement has contents, hash and index, and does not say who brought it.
	stated.Payload, _ = n.mesh.Statement(entry)

	// A present statement without a proof is shown alone.
	if note, path, err := n.mesh.Inclusion(origin, at.Epoch, stated.Index); ok && err == nil {
		stated.Path, past.Checkpoints = path, []string{note}
	}

	past.Statements = []directory.PastStatement{stated}

	return past, nil
}
