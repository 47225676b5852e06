package checkpoint

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
)

// ErrForm is wrapped by the errors of texts that are not in their form.
var ErrForm = errors.New("malformed")

// ErrProof is wrapped by the errors of proofs that do not lead to a checkpoint.
var ErrProof = errors.New("the proof does not lead to the checkpoint's root")

// MaxPath bounds the hashes of a proof: a log has fewer than 2^63 leaves.
const MaxPath = 63

// maxConsistency bounds the hashes of a proof between two checkpoints, which may name
// the old tree's subtrees and their siblings.
const maxConsistency = 2 * MaxPath

// b64 is base64 as C2SP writes it, without spare bits.
var b64 = base64.StdEncoding.Strict()

// A Checkpoint says which tree a log had at one time.
type Checkpoint struct {
	Origin string // the log's name
	Size   uint64 // leaves, fewer than 2^63
	Root   directory.Hash
}

// Text returns the three lines that are signed, the final LF included.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, b64.EncodeToString(c.Root[:]))
}

// Includes checks that a tree of c holds an entry, the bytes whose leaf hash is in the
// tree, at an index. The path has the hashes from the leaf's sibling upwards.
func (c Checkpoint) Includes(entry []byte, index uint64, path []directory.Hash) error {
	if index >= c.Size || c.Size > math.MaxInt64 {
		return fmt.Errorf("%w: it has %d leaves and no index %d", ErrProof, c.Size, index)
	}

	if len(path) > MaxPath {
		return fmt.Errorf("%w: at most %d hashes, got %d", ErrProof, MaxPath, len(path))
	}

	err := tlog.CheckRecord(treeHashes(path), int64(c.Size), tlog.Hash(c.Root), int64(index), tlog.RecordHash(entry))
	if err != nil {
		return fmt.Errorf("%w: index %d of %d", ErrProof, index, c.Size)
	}

	return nil
}

// Extends checks that the log of c is the log of old with leaves appended. Origins are
// not compared. Every tree extends the empty one, by no hashes.
func (c Checkpoint) Extends(old Checkpoint, proof []directory.Hash) error {
	switch {
	case c.Size > math.MaxInt64 || old.Size > c.Size:
		return fmt.Errorf("%w: from %d leaves to %d", ErrProof, old.Size, c.Size)
	case len(proof) > maxConsistency:
		return fmt.Errorf("%w: at most %d hashes, got %d", ErrProof, maxConsistency, len(proof))
	case (old.Size == 0 || old.Size == c.Size) && len(proof) > 0:
		return fmt.Errorf("%w: no hashes are needed from %d leaves to %d", ErrProof, old.Size, c.Size)
	case old.Size == 0 && old.Root != EmptyRoot, c.Size == 0 && c.Root != EmptyRoot:
		return fmt.Errorf("%w: the empty log has another root", ErrProof)
	case old.Size == 0:
		return nil
	}

	err := tlog.CheckTree(treeHashes(proof), int64(c.Size), tlog.Hash(c.Root), int64(old.Size), tlog.Hash(old.Root))
	if err != nil {
		return fmt.Errorf("%w: from %d leaves to %d", ErrProof, old.Size, c.Size)
	}

	return nil
}

// EmptyRoot is the root of a log without leaves.
var EmptyRoot = directory.HashOf(nil)

func treeHashes(hashes []directory.Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(hashes))
	for i, h := range hashes {
		out[i] = tlog.Hash(h)
	}

	return out
}

// parseText reads the signed text of a checkpoint. Extension lines may follow the three.
func parseText(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 {
		return Checkpoint{}, fmt.Errorf("%w: a checkpoint has three lines: origin, size and root", ErrForm)
	}

	if lines[0] == "" {
		return Checkpoint{}, fmt.Errorf("%w: the checkpoint has no origin", ErrForm)
	}

	size, err := parseIndex(lines[1])
	if err != nil {
		return Checkpoint{}, fmt.Errorf("the checkpoint's size: %w", err)
	}

	root, err := parseTreeHash(lines[2])
	if err != nil {
		return Checkpoint{}, fmt.Errorf("the checkpoint's root: %w", err)
	}

	return Checkpoint{lines[0], size, root}, nil
}

// parseIndex reads a decimal number without leading zeros, below 2^63.
func parseIndex(s string) (uint64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: %q is not a decimal number below 2^63", ErrForm, clip(s))
	}

	return uint64(n), nil
}

func parseTreeHash(s string) (directory.Hash, error) {
	raw, err := b64.DecodeString(s)
	if err != nil || len(raw) != tlog.HashSize || b64.EncodeToString(raw) != s {
		return directory.Hash{}, fmt.Errorf("%w: %q is not a SHA-256 in base64", ErrForm, clip(s))
	}

	return directory.Hash(raw), nil
}

// clip shortens foreign text for an error.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}

	return s
}
