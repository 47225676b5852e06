// Package checkpoint reads and writes the texts of a transparency log, to the letter of
// C2SP: checkpoints (tlog-checkpoint) in signed notes (signed-note), the cosignatures of
// witnesses (tlog-cosignature, Ed25519), keys of verifiers, policies (tlog-policy) and
// proofs of inclusion (tlog-proof).
//
// It is pure. Parsing checks the form of a text and none of its signatures; each text has
// one form, so that whatever parses is what Text or Format would write. Foreign texts may
// hold what Roster never writes: extension lines of a checkpoint, comments of a policy,
// and signatures of types that are unknown here.
//
//   - checkpoint.go: the tree head, and proofs against it
//   - note.go: signed notes, signatures and cosignatures
//   - key.go: keys of verifiers
//   - policy.go: which logs and witnesses a verifier believes
//   - proof.go: proofs of inclusion as files
package checkpoint
