package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// populated is a state with so many registrations, and their rids.
func populated(b testing.TB, n int) (*drive, []directory.RID) {
	b.Helper()

	d, rids := newDrive(b), make([]directory.RID, n)
	for at := 0; at < n; {
		var cs []Command
		for ; at < n && len(cs) < 256; at++ {
			var entropy [10]byte
			binary.BigEndian.PutUint64(entropy[:], uint64(at)*0x9E3779B97F4A7C15)
			g := meshGrant(ada)
			g.Policy = d.state.policy.basis
			rids[at] = directory.NewRID(genesis, entropy)
			cs = append(cs, Command{Register: &Register{
				Format: signed.StatementFormat, RID: rids[at], Salt: signed.Salt(bytes.Repeat(entropy[:], 4)),
				Caller: ada, Agent: fmt.Sprintf("agent-%08d", at), Kind: directory.KindAD,
				Document: directorytest.Weighty(at), Lifetime: 86400,
				Visibility: directory.Visibility{Mesh: true}, Granted: g,
			}})
		}

		rs, err := d.state.Apply(&Batch{FirstVersion, genesis, cs})
		if err != nil || rs[0].Err != nil {
			b.Fatal(err, rs[0].Err)
		}
	}

	return d, rids
}
