package state

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// History is how far a domain's history goes: its epoch, the last revision and the
// committed time, and the ledger of the epoch.
type History struct {
	domain   spiffeid.TrustDomain
	epoch    uint64 // 0 before the first command
	revision uint64
	now      int64 // committed time, Unix milliseconds: the highest of an entry since the last correction
	ledger   ledger.Frontier
	// sealed is why a new epoch must begin before anything else; empty if none must.
	sealed string
	// restored is the last revision of the backup that the epoch began with, or that has
	// sealed the state; 0 if the domain was never restored. restoredBy says who ordered it.
	restored   uint64
	restoredBy *Origin
	commands   uint64 // traced so far, in all epochs
	// entries and began are those of Logged.
	entries []ledger.Entry
	began   *ledger.Start
	past    []Past // the statements that the last piece has ended
	// bringer is the member that brought the command at hand; zero if none did. Statements name it.
	bringer spiffeid.ID
}

// Position returns the position of the last change.
func (h *History) Position() directory.Position {
	return directory.Position{Epoch: h.epoch, Revision: h.revision}
}

// Restored returns the last revision of the backup that the epoch began with; 0 for the
// first epoch. Positions of earlier epochs up to it are part of the history.
func (h *History) Restored() uint64 { return h.restored }

// Revision returns the last revision.
func (h *History) Revision() uint64 { return h.revision }

// Commands returns how many commands were traced so far.
func (h *History) Commands() uint64 { return h.commands }

// Now returns the committed time, in Unix milliseconds.
func (h *History) Now() int64 { return h.now }

// advance takes the time of an entry (rule T1). Leaders' clocks differ, and are set, so a time that
// lies up to a minute before the last changes nothing. One that lies further before it corrects it:
// leaders stamp such a step only after something outside it has confirmed it (rule T2).
func (h *History) advance(at int64) {
	if at > h.now || h.now-at > directory.MaxStep.Milliseconds() {
		h.now = at
	}
}

// Sealed returns why a new epoch must begin before any other command is applied; empty
// if none must.
func (h *History) Sealed() string { return h.sealed }

// Ledger returns the size and root of the epoch's Merkle log.
func (h *History) Ledger() (size uint64, root directory.Hash) {
	return h.ledger.Size, h.ledger.Root()
}

// log appends the entry of a payload to the ledger.
func (h *History) log(kind byte, payload []byte) {
	entry := ledger.EntryOf(kind, payload)
	h.ledger.Append(entry)
	h.entries = append(h.entries, entry)
}

// Logged returns the entries that the last Apply or Next has appended to the ledger, and the start of the epoch
// that it began, whose log is empty before them; nil if it began none. The entries must not be kept.
func (h *History) Logged() (entries []ledger.Entry, began *ledger.Start) { return h.entries, h.began }

// Past returns the statements that the last Apply or Next has ended.
func (h *History) Past() []Past { return h.past }

// next gives the change at hand the domain's next revision.
func (h *History) next() uint64 {
	h.revision++
	return h.revision
}

// A commandLeaf is the contents of a leaf of an operator's command.
type commandLeaf struct {
	domain spiffeid.TrustDomain
	*directory.OperatorCommand

	bundle []byte // that a node's own command gives a peer; nil for others
}

// payload is {v, iss, epoch, rev, at, action, target, by, from, bh, proof}. Of a node's own
// command by is node, and bh and proof are absent; bundle is behind from if it gives a peer one.
func (leaf *commandLeaf) payload() []byte {
	data := strictjson.AppendUint([]byte{'{'}, "v", 1)
	data = strictjson.AppendText(data, "iss", leaf.domain.IDString())
	data = strictjson.AppendUint(data, "epoch", leaf.Position.Epoch)
	data = strictjson.AppendUint(data, "rev", leaf.Position.Revision)
	data = strictjson.AppendUint(data, "at", uint64(leaf.At.Unix()))
	data = strictjson.AppendText(data, "action", leaf.Action)
	data = strictjson.AppendText(data, "target", leaf.Target)

	from := ""
	if !leaf.From.IsZero() {
		from = leaf.From.String()
	}

	if leaf.Request == nil {
		// No operator's request came with the command.
		by := ""
		if leaf.Node {
			by = directory.ByNode
		}

		data = strictjson.AppendText(data, "by", by)

		data = strictjson.AppendText(data, "from", from)
		if leaf.bundle != nil {
			data = strictjson.AppendText(data, "bundle", directory.HashOf(leaf.bundle).String())
		}

		return append(data, '}')
	}

	data = strictjson.AppendText(data, "by", leaf.Request.By.String())
	data = strictjson.AppendText(data, "from", from)

	data = strictjson.AppendText(data, "bh", leaf.Request.BodyHash.String())
	if leaf.Request.Proof != "" {
		data = strictjson.AppendText(data, "proof", directory.HashOf([]byte(leaf.Request.Proof)).String())
	}

	return append(data, '}')
}
