package consensus

import (
	"bytes"
	"encoding/hex"
	"flag"
	"io"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

// genesis is a committed time: 2026-11-01, in Unix milliseconds.
const genesis = int64(1793491200000)

// nextReads are the versions that a later release may read.
var nextReads = Versions{Log: 2, Snapshot: 3, Wire: 4, Formats: signed.Formats{signed.StructurePage: {1, 2}}}

// updateGolden writes the golden files anew. An encoding that is in a log never
// changes: a changed line is a new version.
var updateGolden = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	directorytest.Golden(t, *updateGolden, name, []byte(got))
}

func valueOf[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}

func describe(data []byte) string {
	return hex.EncodeToString(data) + "\n" + valueOf(cbor.Diagnose(data)) + "\n\n"
}

// freeze returns a snapshot of s. The caller keeps others from changing it.
func freeze(t testing.TB, s *state.State) []byte {
	t.Helper()

	var file bytes.Buffer
	must(t, s.Snapshot().Write(&file))

	return file.Bytes()
}

// frozenOf returns a snapshot of a member's state.
func frozenOf(t testing.TB, s *Store) (data []byte) {
	t.Helper()
	s.Replica.use(func(now *state.State) { data = freeze(t, now) })

	return data
}

func readSnapshot(r io.Reader, domain spiffeid.TrustDomain, index *index.Index) (*state.State, error) {
	s, _, err := state.Read(r, domain, index, backup.Processors())

	return s, err
}

func claimOf(key, body, holder byte) *state.Claim {
	return &state.Claim{
		Key: directory.Hash{key}, Caller: directory.Hash{99}, Body: directory.Hash{body},
		Holder: directory.Hash{holder},
		Lease:  60, Window: 600,
	}
}
