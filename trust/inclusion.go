package trust

import (
	"errors"
	"fmt"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// leafStatement is the type byte of a statement's leaf (federation.md, "Bytes").
const leafStatement = 1

// inclusion checks that the origin's ledger holds the statement at its index,
// under a checkpoint that a key of the key document signed.
func (v *verification) inclusion() (string, error) {
	proof := v.proof
	if proof.Checkpoint == "" {
		return "not logged: the proof shows origin and freshness, and no ledger", errNotShown
	}

	origin := fmt.Sprintf("%s/roster/%d", v.contents.Issuer, v.contents.Epoch)

	note, others, err := openCheckpoint(proof.Checkpoint, origin, v.believed())
	if err != nil {
		return "", err
	}

	if others > 0 {
		v.leaveUnchecked(UncheckedSignatures)
	}

	if *proof.Index != v.contents.Leaf {
		return "", fmt.Errorf("%w: the proof is of leaf %d, the statement's is %d", ErrInclusion, *proof.Index,
			v.contents.Leaf)
	}

	entry := append([]byte{leafStatement}, v.contents.H[:]...)
	if err := note.Includes(entry, *proof.Index, proof.Path); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInclusion, err)
	}

	v.report.Logged = true

	return fmt.Sprintf("leaf %d of %d in the ledger %s", *proof.Index, note.Size, origin), nil
}

// believed returns the keys that the document doesn't revoke and that are pinned, or
// that an SVID attested when the page was made.
func (v *verification) believed() []signed.SigningKey {
	var keys []signed.SigningKey
	for _, k := range v.keys.Keys {
		if _, err := v.keys.Key(k.KeyID()); err != nil {
			continue
		}

		if v.pinned || judgeKey(k, v.contents.Issuer, v.authorities, v.judgedAt()).err == nil {
			keys = append(keys, k)
		}
	}

	return keys
}

// openCheckpoint reads a checkpoint of origin that one of keys signed. It counts the
// signatures of others, witnesses among them, and leaves them alone.
func openCheckpoint(text, origin string, keys []signed.SigningKey) (note *checkpoint.Note, others int, err error) {
	if note, err = checkpoint.Parse(text); err != nil {
		return nil, 0, fmt.Errorf("%w: the checkpoint: %w", ErrInclusion, err)
	}

	if note.Origin != origin {
		return nil, 0, fmt.Errorf("%w: the checkpoint is not of the ledger %s", ErrInclusion, origin)
	}

	others = len(note.Signatures)

	for _, k := range keys {
		key := checkpoint.VerifierKey{Name: origin, Type: checkpoint.TypeLog, Key: k.Public}

		switch _, err := note.Verify(key); {
		case err == nil:
			others--
		case !errors.Is(err, checkpoint.ErrNotSigned):
			return nil, 0, fmt.Errorf("%w: the checkpoint: %w", ErrInclusion, err)
		}
	}

	if others == len(note.Signatures) {
		return nil, 0, fmt.Errorf("%w: the checkpoint is not signed by a key of the key document", ErrInclusion)
	}

	return note, others, nil
}
