package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
)

// entriesOf are log entries of 64 registrations each, as a leader makes them.
func entriesOf(b *testing.B, d *drive, n int) (entries [][]byte) {
	b.Helper()

	for at := 0; at < n; {
		var group []cbor.RawMessage
		for ; at < n && len(group) < 64; at++ {
			var entropy [10]byte
			binary.BigEndian.PutUint64(entropy[:], uint64(at)*0x9E3779B97F4A7C15)
			g := meshGrant(ada)
			g.Policy = d.state.policy.basis
			c := &Register{
				Format: signed.StatementFormat, RID: directory.NewRID(genesis, entropy),
				Salt:   signed.Salt(bytes.Repeat(entropy[:], 4)),
				Caller: ada, Agent: fmt.Sprintf("agent-%08d", at), Kind: directory.KindAD, Document: weighty(at),
				Lifetime:   86400,
				Visibility: directory.Visibility{Mesh: true}, Granted: g,
			}
			doc := directory.LoadDocument(c.Kind, c.Document)
			c.Document = doc.Compressed().StoredBytes()

			p, err := kinds.Project(c.Agent, doc)
			if err != nil {
				b.Fatal(err)
			}

			c.Made = &Made{Packed: Pack(doc, p)}
			c.Made.Complete(c.Agent, doc, c.Provenance(), c.Salt, g)

			raw, err := Marshal(&Command{Register: c})
			if err != nil {
				b.Fatal(err)
			}

			group = append(group, raw)
		}

		data, err := EncodeBatch(FirstVersion, genesis, group)
		if err != nil {
			b.Fatal(err)
		}

		entries = append(entries, data)
	}

	return entries
}

// What one member has to do for registrations that are committed.
func BenchmarkApply(b *testing.B) {
	const n = 20_000
	entries := entriesOf(b, newDrive(b), n)

	var spent float64
	for b.Loop() {
		d := newDrive(b)
		began := used(syscall.RUSAGE_SELF)

		for _, data := range entries {
			batch, err := DecodeBatch(data)
			if err != nil {
				b.Fatal(err)
			}

			rs, err := d.state.Apply(batch)
			if err != nil || rs[0].Err != nil {
				b.Fatal(err, rs[0].Err)
			}
		}

		spent += float64((used(syscall.RUSAGE_SELF) - began).Nanoseconds())
	}

	b.ReportMetric(spent/float64(b.N)/n, "cpu-ns/registration")
}
