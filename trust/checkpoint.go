package trust

import (
	"fmt"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// SignCheckpoint returns a checkpoint of the domain's ledger as a note, by this node's
// signing key. The last one is kept, so that strangers who ask for it cost no signature.
// The error is that of signed.KeyDocument.Key, unless the domain's key document lists the key.
func (r *Keyring) SignCheckpoint(c checkpoint.Checkpoint) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.own == nil {
		return "", fmt.Errorf("%w: the domain has no key document yet", signed.ErrKeyUnknown)
	}

	// No verifier would accept a checkpoint by a key that the document does not list.
	if _, err := r.own.Key(r.key.ID()); err != nil {
		return "", err
	}

	if r.checkpointNote == "" || r.checkpoint != c {
		r.checkpoint, r.checkpointNote = c, checkpoint.Sign(c, r.key.private)
	}

	return r.checkpointNote, nil
}
