package witness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// A Taken is the last checkpoint of a log that the domain has taken.
type Taken struct {
	Origin string
	Size   uint64
	Root   directory.Hash
	Note   string // with the signatures of its log
	At     int64  // Unix seconds
}

// A Next is the checkpoint that is to follow the one of size Old.
type Next struct {
	Origin string
	Old    uint64
	Size   uint64
	Root   directory.Hash
	Note   string
}

// A Store is the domain's replicated memory of the checkpoints that it has cosigned.
type Store interface {
	// Cosigned returns the last one, as known here, and the epoch for whose keys it is good.
	Cosigned(origin string) (last Taken, epoch uint64, ok bool)
	// Cosign takes the next one, or fails with directory.Conflict if another one came first.
	Cosign(ctx context.Context, next Next, proof []directory.Hash) (epoch uint64, at time.Time, err error)
	// Linearize returns nil once Cosigned shows all that any member has taken before the call.
	Linearize(ctx context.Context) error
}

// A Keyring cosigns as this node.
type Keyring interface {
	Cosign(note *checkpoint.Note, epoch uint64, at time.Time) (string, error)
}

// Config configures a Witness.
type Config struct {
	PublicURL string // for the types of problems; relative if it is empty
	Logs      *Logs
	Store     Store
	Keys      Keyring
	// Policy returns the policy that asks for a cosignature of this domain (C2SP tlog-policy).
	Policy func() (string, error)
	// Contradicts is called with two checkpoints of one size that a peer's ledger has signed, whose
	// roots differ. It must not block.
	Contradicts func(peer spiffeid.TrustDomain, taken, other string)
}

// A Witness cosigns checkpoints of the logs that it knows.
type Witness struct{ cfg Config }

// New returns a witness.
func New(cfg Config) *Witness { return &Witness{cfg} }

// A refusal is an answer to a submission that is not taken, with its status in tlog-witness.
type refusal struct {
	status int
	size   uint64        // of StatusConflict: the size that was cosigned last
	after  time.Duration // of StatusTooManyRequests
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, err: fmt.Errorf(format, args...)}
}

// judge returns the next checkpoint of a log if it continues the last one. It is asked by the member that
// got it and once more by the leader, with the same answers.
func judge(note *checkpoint.Note, old uint64, proof []directory.Hash, last Taken) error {
	before := checkpoint.Checkpoint{Origin: note.Origin, Root: checkpoint.EmptyRoot}
	if last.Origin != "" {
		before.Size, before.Root = last.Size, last.Root
	}

	switch {
	case old > note.Size:
		return refuse(http.StatusBadRequest, "the checkpoint has size %d, smaller than the old one, %d", note.Size, old)
	case old != before.Size:
		return &refusal{status: http.StatusConflict, size: before.Size, err: fmt.Errorf(
			"the checkpoint that was cosigned last has size %d, not %d", before.Size, old)}
	}

	if err := note.Extends(before, proof); err != nil {
		return refuse(http.StatusUnprocessableEntity, "%w", err)
	}

	return nil
}

// Add takes a checkpoint and returns this node's cosignature. Errors are those of the store, or say with
// which status to answer.
func (w *Witness) Add(ctx context.Context, body string) (line string, err error) {
	submission, err := parseSubmission(body)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "%w", err)
	}

	note, err := checkpoint.Parse(submission.Checkpoint)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "the checkpoint: %w", err)
	}

	log, signedNote, err := w.cfg.Logs.verify(note)
	if err != nil {
		return "", err
	}

	last, epoch, err := w.last(ctx, note, submission.Old)
	if err != nil {
		return "", err
	}

	// Compared first, because judge refuses a contradictory checkpoint.
	w.compare(log, note, signedNote, last)

	if err := judge(note, submission.Old, submission.Proof, last); err != nil {
		return "", err
	}

	if since := time.Since(time.Unix(last.At, 0)); last.Origin != "" && since < log.every {
		// The domain has taken this checkpoint already. Another cosignature, by this node's key, doesn't count
		// for the rate.
		if last.Size == note.Size {
			return w.cosign(note, epoch, time.Unix(last.At, 0))
		}

		limited := refuse(http.StatusTooManyRequests, "a checkpoint of %s is cosigned every %s", note.Origin, log.every)
		limited.after = log.every - max(since, 0)

		return "", limited
	}

	epoch, at, err := w.cfg.Store.Cosign(ctx, Next{
		Origin: note.Origin, Old: submission.Old, Size: note.Size, Root: note.Root, Note: signedNote,
	}, submission.Proof)
	if directory.ProblemOf(err) == directory.Conflict { // another one came first
		// A size beyond the note's makes last ask the other members.
		if last, _, again := w.last(ctx, note, note.Size+1); again == nil {
			err = refuseMoved(last, err)
		}
	}

	if err != nil {
		return "", err
	}

	return w.cosign(note, epoch, at)
}

// refuseMoved says which size is cosigned by now.
func refuseMoved(last Taken, err error) error {
	return &refusal{status: http.StatusConflict, size: last.Size, err: err}
}

// last returns the last checkpoint of a log. If a submission names a later one than is known here, other
// members may have taken it.
func (w *Witness) last(ctx context.Context, note *checkpoint.Note, old uint64) (Taken, uint64, error) {
	last, epoch, _ := w.cfg.Store.Cosigned(note.Origin)
	if old <= last.Size {
		return last, epoch, nil
	}

	if err := w.cfg.Store.Linearize(ctx); err != nil {
		return last, epoch, err
	}

	last, epoch, _ = w.cfg.Store.Cosigned(note.Origin)

	return last, epoch, nil
}

// compare reports a checkpoint that contradicts the last one.
func (w *Witness) compare(log known, note *checkpoint.Note, signedNote string, last Taken) {
	if last.Origin == note.Origin && last.Size == note.Size && last.Root != note.Root && !log.peer.IsZero() &&
		w.cfg.Contradicts != nil {
		w.cfg.Contradicts(log.peer, last.Note, signedNote)
	}
}

// cosign returns this node's cosignature of a checkpoint that the domain has taken.
func (w *Witness) cosign(note *checkpoint.Note, epoch uint64, at time.Time) (string, error) {
	line, err := w.cfg.Keys.Cosign(note, epoch, at)
	if errors.Is(err, signed.ErrKeyUnknown) || errors.Is(err, signed.ErrKeyRevoked) {
		err = directory.Refuse(directory.Unavailable, "this node can't cosign yet: %w", err)
	}

	return line, err
}

// Latest returns the last checkpoint of a log that was cosigned, with this node's cosignature. The log is
// named by the SHA-256 of its origin in hex.
func (w *Witness) Latest(hash string) (string, error) {
	for _, log := range w.cfg.Logs.all("") {
		sum := sha256.Sum256([]byte(log.origin))
		if hex.EncodeToString(sum[:]) != hash {
			continue
		}

		last, epoch, ok := w.cfg.Store.Cosigned(log.origin)
		if !ok {
			break
		}

		note, err := checkpoint.Parse(last.Note)
		if err != nil {
			return "", fmt.Errorf("the checkpoint of %s as it was taken: %w", log.origin, err)
		}

		line, err := w.cosign(note, epoch, time.Unix(last.At, 0))

		return last.Note + line, err
	}

	return "", directory.Refuse(directory.NotFound, "this witness has cosigned no log whose origin hashes to %.64q",
		hash)
}
