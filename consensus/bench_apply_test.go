package consensus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// entriesOf are log entries of 64 registrations each, as a leader makes them.
func entriesOf(b *testing.B, d *drive, n int) (entries [][]byte) {
	b.Helper()
	for at := 0; at < n; {
		var group []*proposal
		for ; at < n && len(group) < 64; at++ {
			var entropy [10]byte
			binary.BigEndian.PutUint64(entropy[:], uint64(at)*0x9E3779B97F4A7C15)
			g := meshGrant(ada)
			g.Policy = d.state.policy
			c := &register{
				Format: directory.StatementFormat, RID: directory.NewRID(genesis, entropy), Salt: directory.Salt(bytes.Repeat(entropy[:], 4)),
				Caller: ada, Agent: fmt.Sprintf("agent-%08d", at), Kind: directory.KindAD, Document: weighty(at), Lifetime: 86400,
				Visibility: directory.Visibility{Mesh: true}, Granted: g,
			}
			doc := directory.LoadDocument(c.Kind, c.Document)
			c.Document = doc.AtRest().Resting()
			p, err := directory.Project(c.Agent, doc)
			if err != nil {
				b.Fatal(err)
			}
			c.Made = &made{Packed: pack(doc, p)}
			c.Made.complete(&Subject{c.RID, c.Agent, ada, doc, p, c.Visibility}, c.provenance(), c.Salt, g)
			raw, err := encoding.Marshal(&command{Register: c})
			if err != nil {
				b.Fatal(err)
			}
			group = append(group, &proposal{command: raw})
		}
		data, err := encodeGroup(group, firstVersion, genesis)
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
			batch, err := decodeBatch(data)
			if err != nil {
				b.Fatal(err)
			}
			rs, err := d.state.apply(batch, func() {})
			if err != nil || rs[0].err != nil {
				b.Fatal(err, rs[0].err)
			}
		}
		spent += float64((used(syscall.RUSAGE_SELF) - began).Nanoseconds())
	}
	b.ReportMetric(spent/float64(b.N)/n, "cpu-ns/registration")
}
