package state

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of the memory of a witness.
const (
	// maxCosignedLogs bounds the logs of which this domain has cosigned a checkpoint. A witness that
	// forgot a log would cosign another branch of it, so a full one takes no new log.
	maxCosignedLogs = 1024
	// maxCheckpoint bounds a checkpoint with the signature of its log, in bytes.
	maxCheckpoint = 4096
	// maxCosignatures bounds the lines of the witnesses that cosigned one checkpoint, in bytes.
	maxCosignatures = 16 << 10
)

// A Cosign is the compare-and-set by which this domain, as a witness, takes a checkpoint of a log:
// it is applied only if Old is the size that the domain has cosigned last. That the log signed it and
// that it is consistent with the last one was verified before.
type Cosign struct {
	Origin string         `cbor:"1,keyasint"`
	Old    uint64         `cbor:"2,keyasint"` // 0 before the first
	Size   uint64         `cbor:"3,keyasint"`
	Root   directory.Hash `cbor:"4,keyasint"`
	// Note is the checkpoint with the signatures of its log: with another one of that size they are evidence.
	Note string `cbor:"5,keyasint"`
}

// A CosignedLog is the last checkpoint of a log that this domain has cosigned. It is never modified.
type CosignedLog struct {
	Origin string         `cbor:"1,keyasint"`
	Size   uint64         `cbor:"2,keyasint"`
	Root   directory.Hash `cbor:"3,keyasint"`
	Note   string         `cbor:"4,keyasint"`
	At     int64          `cbor:"5,keyasint"` // Unix seconds of committed time
}

// Witnessed are the cosignatures that witnesses have made for a checkpoint of the domain's own ledger.
type Witnessed struct {
	Epoch uint64         `cbor:"1,keyasint"`
	Size  uint64         `cbor:"2,keyasint"`
	Root  directory.Hash `cbor:"3,keyasint"`
	Lines string         `cbor:"4,keyasint"`           // as in a signed note
	At    int64          `cbor:"5,keyasint,omitempty"` // set by apply: Unix seconds of committed time
}

// A Witness has the checkpoints of other logs that the domain has cosigned, and the cosignatures of its own.
type Witness struct {
	history *History
	members *Membership

	logs map[string]CosignedLog // by lineage
	own  Witnessed              // zero without one in this epoch
}

func newWitness() Witness { return Witness{logs: map[string]CosignedLog{}} }

// lineage returns the name that the ledgers of all epochs of a domain have in common, and the epoch.
// Other logs are their own lineage, with epoch 0.
func lineage(origin string) (name string, epoch uint64) {
	i := strings.LastIndexByte(origin, '/')
	if i < 0 || !strings.HasSuffix(origin[:i], "/roster") {
		return origin, 0
	}

	epoch, err := strconv.ParseUint(origin[i+1:], 10, 64)
	if err != nil || epoch == 0 || strconv.FormatUint(epoch, 10) != origin[i+1:] {
		return origin, 0
	}

	return origin[:i], epoch
}

// Cosigned returns the last checkpoint of a log that this domain has cosigned.
func (w *Witness) Cosigned(origin string) (CosignedLog, bool) {
	name, _ := lineage(origin)
	known, ok := w.logs[name]

	return known, ok && known.Origin == origin
}

// Own returns the cosignatures of the domain's own ledger in this epoch; zero without any.
func (w *Witness) Own() Witnessed { return w.own }

// Check refuses a checkpoint that apply would not take.
func (w *Witness) Check(c *Cosign) error {
	name, epoch := lineage(c.Origin)
	last, known := w.logs[name]
	size, newEpoch := last.Size, false

	if known && last.Origin != c.Origin {
		// A later epoch of a log begins at size 0, and an earlier one must not come back.
		_, was := lineage(last.Origin)
		if epoch <= was {
			return directory.Refuse(directory.Conflict, "log %s was followed by %s, of which a checkpoint was cosigned",
				c.Origin, last.Origin)
		}

		size, newEpoch = 0, true
	}

	switch {
	case c.Origin == "" || len(c.Origin) > len(c.Note) || len(c.Note) > maxCheckpoint:
		return directory.Refuse(directory.BadRequest, "a checkpoint has an origin and at most %d bytes, got %d",
			maxCheckpoint, len(c.Note))
	case c.Old > c.Size:
		return directory.Refuse(directory.BadRequest, "a checkpoint of size %d doesn't follow one of size %d", c.Size,
			c.Old)
	case c.Old != size:
		return directory.Refuse(directory.Conflict, "the size of %s that was cosigned last is %d, not %d", c.Origin,
			size, c.Old)
	case known && !newEpoch && c.Size == last.Size && c.Root != last.Root:
		return directory.Refuse(directory.Conflict, "a checkpoint of %s with size %d and another root was cosigned",
			c.Origin, c.Size)
	case !known && len(w.logs) >= maxCosignedLogs:
		return directory.Refuse(directory.Unavailable, "this witness has cosigned %d logs, the maximum",
			maxCosignedLogs)
	}

	return nil
}

// cosign takes a checkpoint of another log. It takes no revision and is no leaf.
func (w *Witness) cosign(c *Cosign) (directory.Outcome, error) {
	if err := w.Check(c); err != nil {
		return directory.Outcome{}, err
	}

	at := w.history.now / 1000
	w.put(CosignedLog{c.Origin, c.Size, c.Root, c.Note, at})

	return directory.Outcome{CosignedAt: at}, nil
}

func (w *Witness) put(log CosignedLog) {
	name, _ := lineage(log.Origin)
	w.logs[name] = log
}

// CheckOwn refuses cosignatures that apply would not take.
func (w *Witness) CheckOwn(c *Witnessed) error {
	size, root := w.history.Ledger()

	switch {
	case len(c.Lines) == 0 || len(c.Lines) > maxCosignatures:
		return directory.Refuse(directory.BadRequest, "cosignatures have 1 to %d bytes, got %d", maxCosignatures,
			len(c.Lines))
	case c.Epoch != w.history.epoch || c.Size > size || c.Size == size && c.Root != root || c.Size < w.own.Size:
		return directory.Refuse(directory.Conflict, "the cosignatures are of a checkpoint with size %d in epoch %d; "+
			"the ledger has epoch %d and size %d, and size %d is cosigned", c.Size, c.Epoch, w.history.epoch, size,
			w.own.Size)
	}

	return nil
}

// keep keeps the cosignatures of the domain's own ledger.
func (w *Witness) keep(c *Witnessed) error {
	if err := w.CheckOwn(c); err != nil {
		return err
	}

	w.own = *c
	w.own.At = w.history.now / 1000

	return nil
}

// all returns the logs by their origins.
func (w *Witness) all() []CosignedLog {
	all := make([]CosignedLog, 0, len(w.logs))
	for _, log := range w.logs {
		all = append(all, log)
	}

	slices.SortFunc(all, func(a, b CosignedLog) int { return cmp.Compare(a.Origin, b.Origin) })

	return all
}

// take takes over the logs that other has cosigned further.
func (w *Witness) take(other *Witness) {
	for _, log := range other.all() {
		name, epoch := lineage(log.Origin)
		known, ok := w.logs[name]
		_, had := lineage(known.Origin)

		if !ok || had < epoch || had == epoch && known.Size < log.Size {
			w.logs[name] = log
		}
	}
}

// forgotten returns the origin of a log of which w has cosigned less than had, or another branch; "" if there is
// none.
func (w *Witness) forgotten(had *Witness) string {
	for _, before := range had.all() {
		name, epoch := lineage(before.Origin)
		now, known := w.logs[name]
		_, newer := lineage(now.Origin)

		behind := now.Size < before.Size || now.Size == before.Size && now.Root != before.Root
		if !known || newer < epoch || now.Origin == before.Origin && behind {
			return before.Origin
		}
	}

	return ""
}
