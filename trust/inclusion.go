package trust

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory/signed"
)

// leafStatement is the type byte of a statement's leaf (federation.md, "Bytes").
const leafStatement = 1

// maxPath bounds an inclusion proof: a ledger has fewer than 2^63 leaves.
const maxPath = 63

// inclusion checks that the origin's ledger holds the statement at its index,
// under a checkpoint that a key of the key document signed.
func (v *verification) inclusion() (string, error) {
	proof := v.proof
	if proof.Checkpoint == "" {
		return "not logged: the proof shows origin and freshness, and no ledger", errNotShown
	}

	origin := fmt.Sprintf("%s/roster/%d", v.contents.Issuer, v.contents.Epoch)

	size, root, others, err := openCheckpoint(proof.Checkpoint, origin, v.believed())
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

	if *proof.Index >= uint64(size) || len(proof.Path) > maxPath {
		return "", fmt.Errorf("%w: the checkpoint has %d leaves", ErrInclusion, size)
	}

	path := make(tlog.RecordProof, len(proof.Path))
	for i, h := range proof.Path {
		path[i] = tlog.Hash(h)
	}

	leaf := tlog.RecordHash(append([]byte{leafStatement}, v.contents.H[:]...))
	if err := tlog.CheckRecord(path, size, root, int64(*proof.Index), leaf); err != nil {
		return "", fmt.Errorf("%w: the path does not lead to the checkpoint's root", ErrInclusion)
	}

	v.report.Logged = true

	return fmt.Sprintf("leaf %d of %d in the ledger %s", *proof.Index, size, origin), nil
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

// openCheckpoint reads a C2SP checkpoint that one of keys signed. Signatures of
// others, witnesses among them, are counted and left alone.
func openCheckpoint(
	text, origin string, keys []signed.SigningKey,
) (size int64, root tlog.Hash, others int, err error) {
	fail := func(why string) (int64, tlog.Hash, int, error) {
		return 0, tlog.Hash{}, 0, fmt.Errorf("%w: the checkpoint %s", ErrInclusion, why)
	}

	var verifiers []note.Verifier
	for _, k := range keys {
		name, err := note.NewEd25519VerifierKey(origin, k.Public)
		if err != nil {
			return fail("can't be checked")
		}

		verifier, err := note.NewVerifier(name)
		if err != nil {
			return fail("can't be checked")
		}

		verifiers = append(verifiers, verifier)
	}

	n, err := note.Open([]byte(text), note.VerifierList(verifiers...))
	if err != nil {
		return fail("is not signed by a key of the key document")
	}

	if !hasCanonicalLines(text, n) {
		return fail("is not in canonical form")
	}

	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] != origin {
		return fail("is not of the ledger " + origin)
	}

	size, err = strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return fail("has no size")
	}

	raw, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(raw) != tlog.HashSize {
		return fail("has no root")
	}

	return size, tlog.Hash(raw), len(n.UnverifiedSigs), nil
}

// hasCanonicalLines reports whether each signature line of an opened note is there once
// and in its one encoding. The library skips a second line by one key, and spare bits
// of the base64.
func hasCanonicalLines(text string, n *note.Note) bool {
	lines := strings.Split(strings.TrimPrefix(text, n.Text+"\n"), "\n")

	signatures := slices.Concat(n.Sigs, n.UnverifiedSigs)
	if len(lines) != len(signatures)+1 { // nothing stands behind the last line
		return false
	}

	return !slices.ContainsFunc(signatures, func(s note.Signature) bool {
		raw, err := base64.StdEncoding.Strict().DecodeString(s.Base64)
		line := "— " + s.Name + " " + base64.StdEncoding.EncodeToString(raw)

		return err != nil || !slices.Contains(lines, line)
	})
}
