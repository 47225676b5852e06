package witness

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
)

// A Log is one that is no peer's, and that the domain cosigns.
type Log struct {
	Keys    []checkpoint.VerifierKey // at least one, all of one name
	Every   time.Duration            // at least that lies between two checkpoints
	Contact string                   // of its operator; may be empty
}

// A LogKeyring knows the keys of peers' ledgers.
type LogKeyring interface {
	LogKeys(origin spiffeid.TrustDomain) []checkpoint.VerifierKey
}

// Logs are the logs whose checkpoints the domain cosigns: the ledgers of its active peers, and the
// configured ones.
type Logs struct {
	Keys     LogKeyring
	Peerings func() []directory.Peering // of the domain
	Outside  []Log
	Every    time.Duration // between two checkpoints of a peer's ledger
}

// A known is a log whose checkpoints are taken.
type known struct {
	peer    spiffeid.TrustDomain // zero for one that is configured
	origin  string
	keys    []checkpoint.VerifierKey
	every   time.Duration
	contact string
}

// find returns the log of an origin. A configured one comes before a peer's.
func (l *Logs) find(origin string) (log known, ok bool) {
	for _, log := range slices.Backward(l.all(origin)) {
		if log.origin == origin {
			return log, true
		}
	}

	return known{}, false
}

func (l *Logs) configured(log Log) known {
	every := log.Every
	if every == 0 {
		every = l.Every
	}

	return known{origin: log.Keys[0].Name, keys: log.Keys, every: every, contact: log.Contact}
}

// ledgerOf returns the ledger of a peer's present epoch; ok is false until its key document is known.
func (l *Logs) ledgerOf(peer spiffeid.TrustDomain) (log known, ok bool) {
	keys := l.Keys.LogKeys(peer)
	if len(keys) == 0 {
		return known{}, false
	}

	return known{peer: peer, origin: keys[0].Name, keys: keys, every: l.Every}, true
}

// all returns the known logs: those of peers, and then those of the configuration. With an origin, as strangers
// may send one, only the keys of the peer that it names are looked up.
func (l *Logs) all(origin string) (logs []known) {
	for _, peering := range l.Peerings() {
		named := origin == "" || strings.HasPrefix(origin, peering.Domain.Name()+"/")
		if !named || peering.State != directory.PeeringActive {
			continue
		}

		if log, ok := l.ledgerOf(peering.Domain); ok {
			logs = append(logs, log)
		}
	}

	for _, log := range l.Outside {
		logs = append(logs, l.configured(log))
	}

	return logs
}

// verify returns the log of a note, and the note with the log's signatures alone.
func (l *Logs) verify(note *checkpoint.Note) (log known, signedNote string, err error) {
	log, ok := l.find(note.Origin)
	if !ok {
		return log, "", refuse(http.StatusNotFound, "this witness does not know the log %.100q", note.Origin)
	}

	signedNote = note.Text + "\n"
	held := false

	for _, key := range log.keys {
		switch _, err := note.Verify(key); {
		case errors.Is(err, checkpoint.ErrNotSigned):
			continue
		case err != nil:
			// A forged line of a trusted key refuses the note, even if another key has signed it.
			return log, "", refuse(http.StatusForbidden, "a signature of %s: %w", note.Origin, err)
		}

		held = true

		for _, line := range note.Signatures {
			if line.Name == key.Name && line.ID == key.ID() {
				signedNote += line.String()
			}
		}
	}

	if !held {
		return log, "", refuse(http.StatusForbidden, "no trusted key of %s has signed the checkpoint", note.Origin)
	}

	return log, signedNote, nil
}

// Check is for the leader: whether a checkpoint that another member brings continues the
// last one that is taken.
func (l *Logs) Check(next Next, last Taken, proof []directory.Hash) error {
	note, err := checkpoint.Parse(next.Note)
	if err == nil {
		_, _, err = l.verify(note)
	}

	if err == nil && (note.Origin != next.Origin || note.Size != next.Size || note.Root != next.Root) {
		err = errors.New("it is another checkpoint than its note")
	}

	if err == nil {
		err = judge(note, next.Old, proof, last)
	}

	if err != nil {
		return directory.Refuse(directory.Forbidden, "checkpoint of %.100q: %w", next.Origin, err)
	}

	return nil
}

// List returns the logs that this domain witnesses (C2SP tlog-list).
func (l *Logs) List() string {
	var b strings.Builder
	b.WriteString("logs/v0\n")

	for _, log := range l.all("") {
		for _, key := range log.keys {
			fmt.Fprintf(&b, "\nvkey %s\nqpd %d\n", key, max(int64(24*time.Hour/log.every), 1))

			if log.contact != "" {
				fmt.Fprintf(&b, "contact %s\n", log.contact)
			}
		}
	}

	return b.String()
}
