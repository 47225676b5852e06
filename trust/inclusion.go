package trust

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
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

	origin := directory.LogName(v.contents.Issuer, v.contents.Epoch)

	note, err := v.openCheckpoint(origin)
	if err != nil {
		return "", err
	}

	// The signed statement names its leaf: an equal entry elsewhere in the ledger is no substitute.
	if *proof.Index != v.contents.Leaf {
		return "", fmt.Errorf("%w: the proof is of leaf %d, the statement's is %d", ErrInclusion, *proof.Index,
			v.contents.Leaf)
	}

	entry := append([]byte{leafStatement}, v.contents.H[:]...)
	if err := note.Includes(entry, *proof.Index, proof.Path); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInclusion, err)
	}

	v.note = note
	v.report.Logged = true
	v.report.Log = &LogEntry{Origin: origin, Index: *proof.Index, Size: note.Size}

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

// openCheckpoint reads the file's checkpoint, which must be of origin and signed by a key
// of the domain. Lines by keys of neither the domain nor the policy are left unchecked.
func (v *verification) openCheckpoint(origin string) (*checkpoint.Note, error) {
	note, err := checkpoint.Parse(v.proof.Checkpoint)
	if err != nil {
		return nil, fmt.Errorf("%w: the checkpoint: %w", ErrInclusion, err)
	}

	if note.Origin != origin {
		return nil, fmt.Errorf("%w: the checkpoint is not of the ledger %s", ErrInclusion, origin)
	}

	var checked []checkpoint.VerifierKey

	for _, k := range v.believed() {
		key := checkpoint.VerifierKey{Name: origin, Type: checkpoint.TypeLog, Key: k.Public}

		// One node signs a checkpoint, so most keys have no line; a line that does not verify fails the file.
		switch _, err := note.Verify(key); {
		case err == nil:
			checked = append(checked, key)
		case !errors.Is(err, checkpoint.ErrNotSigned):
			return nil, fmt.Errorf("%w: the checkpoint: %w", ErrInclusion, err)
		}
	}

	if len(checked) == 0 {
		return nil, fmt.Errorf("%w: the checkpoint is not signed by a key of the domain", ErrInclusion)
	}

	// The lines of the policy's keys are checked by the step after this one.
	if v.opts.Policy != nil {
		checked = append(checked, v.opts.Policy.Keys()...)
	}

	if slices.ContainsFunc(note.Signatures, func(s checkpoint.Signature) bool {
		return !slices.ContainsFunc(checked, s.IsBy)
	}) {
		v.leaveUnchecked(UncheckedSignatures)
	}

	return note, nil
}

// takeInclusion takes the verifier's tlog-proof for a file without an inclusion proof.
func (v *verification) takeInclusion() error {
	if v.opts.Inclusion == "" {
		return nil
	}

	if v.proof.Checkpoint != "" {
		return fmt.Errorf("%w: the file has an inclusion proof of its own; leave the tlog-proof out", ErrFormat)
	}

	given, err := checkpoint.ParseProof(v.opts.Inclusion)
	if err != nil {
		return fmt.Errorf("%w: the tlog-proof: %w", ErrFormat, err)
	}

	v.proof.Checkpoint, v.proof.Index, v.proof.Path = given.Checkpoint, &given.Index, given.Path

	return nil
}

// witnesses judges the checkpoint by the verifier's policy.
func (v *verification) witnesses() (string, error) {
	policy := v.opts.Policy

	switch {
	case policy == nil && v.note == nil:
		return "not logged", errNotShown
	case policy == nil:
		return "not checked: a policy says which witnesses you believe", errNotShown
	case v.note == nil:
		return "", fmt.Errorf("%w: the file has no checkpoint that they could have cosigned", ErrWitness)
	}

	found, err := policy.Judge(v.note)
	if err != nil {
		return "", fmt.Errorf("%w: the checkpoint: %w", ErrWitness, err)
	}

	// A policy without logs accepts every log: a key of the domain has signed the checkpoint already.
	if len(found.Logs) == 0 && len(policy.Logs) > 0 {
		return "", fmt.Errorf("%w: none of the policy's logs signed the checkpoint of %s", ErrInclusion, v.note.Origin)
	}

	var names []string
	for _, c := range found.Witnesses {
		v.report.Witnesses = append(v.report.Witnesses, Witness{Name: c.Witness.Key.Name, At: c.At})
		names = append(names, c.Witness.Key.Name+" at "+c.At.Format(time.RFC3339))
	}

	if !found.Quorum {
		return "", fmt.Errorf("%w: the policy asks for %s, and the checkpoint has the cosignatures of %d of its %d "+
			"witnesses", ErrWitness, policy.Quorum, len(found.Witnesses), len(policy.Witnesses))
	}

	// Without a quorum the witnesses prove nothing, so the report must not call the record witnessed.
	if policy.Quorum == checkpoint.NoQuorum {
		return "the policy asks for none; cosigned by " + list(names), nil
	}

	v.report.Witnessed = true

	return "cosigned by " + list(names), nil
}

// list returns names as a list in a sentence.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}

	return strings.Join(names, ", ")
}
