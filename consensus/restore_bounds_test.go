package consensus

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// forged returns a backup whose header of the state is changed, with a sum that holds.
func forged(t *testing.T, file []byte, change func(*state.Header)) []byte {
	t.Helper()

	top, items, err := backup.ReadHeader(bytes.NewReader(file[:len(file)-sha256.Size]))
	must(t, err)

	var header state.Header

	dec := state.NewDecoder(items)
	must(t, dec.Decode(&header))

	change(&header)

	var made bytes.Buffer

	made.WriteString(backup.Mark)

	enc := state.NewEncoder(&made)
	for _, part := range []any{top, &header} {
		must(t, enc.Encode(part))
	}

	_, err = io.Copy(&made, io.MultiReader(dec.Buffered(), items))
	must(t, err)

	sum := sha256.Sum256(made.Bytes())
	made.Write(sum[:])

	return made.Bytes()
}

// Counters and time of a domain never go back, so a backup that would set them beyond reason is refused,
// whatever its operator accepts, and changes nothing (finding 36).
func TestABackupBeyondReasonIsRefused(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		d.register(0, "kept", 600)

		file, before := d.backup(0), d.nodes[0].Replica.Position()

		for what, change := range map[string]func(*state.Header){
			"the revision": func(h *state.Header) { h.Revision = math.MaxUint64 - 5 },
			"the time":     func(h *state.Header) { h.Now = time.Now().Add(maxRestoredAhead + time.Minute).UnixMilli() },
		} {
			altered := forged(t, file, change)

			_, err := d.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(altered), accepting(t, altered))
			if got := directory.ProblemOf(err); got != directory.BadRequest && got != directory.Conflict {
				t.Errorf("%s: %v", what, err)
			}

			if at := d.nodes[0].Replica.Position(); at != before {
				t.Errorf("%s: the domain is at %s, and was at %s", what, at, before)
			}
		}

		// The same way of making a backup is accepted within the bounds.
		fine := forged(t, file, func(h *state.Header) { h.Now = time.Now().Add(time.Hour).UnixMilli() })

		_, err := d.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(fine), accepting(t, fine))
		if err != nil {
			t.Error(err)
		}
	})
}

// The hash of a backup is over everything in it: another policy changes it, though the registrations
// are the same. A restore says which policy will be in force before it is accepted.
func TestABackupsHashCoversItsPolicy(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		d.register(0, "kept", 600)

		file := d.backup(0)
		altered := forged(t, file, func(h *state.Header) {
			// The type of the text has no name outside of its package.
			text := []byte("permit (principal, action, resource);")

			policy, err := state.Marshal(map[int]any{21: map[int]any{1: text, 2: 1}})
			if err == nil {
				err = state.Unmarshal(policy, h)
			}

			must(t, err)
		})

		was, is := inspect(t, file), inspect(t, altered)
		if was.Hash != is.Hash || was.Sum == is.Sum || was.Policy != 0 || is.Policy != 1 {
			t.Errorf("the backup is %s with policy %d, the altered one %s with %d", was.Sum, was.Policy, is.Sum,
				is.Policy)
		}

		_, err := d.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(altered), RestoreOptions{})
		if err == nil || !strings.Contains(err.Error(), "the backup's policy, version 1") ||
			!strings.Contains(err.Error(), is.PolicyHash.String()) {
			t.Errorf("the refusal does not name the policy: %v", err)
		}
	})
}
