package state

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// What members record of each command has the payload of its entry in the ledger, so that an audit log of the domain
// accounts for each entry of type 6.
//
// Requirement: LOG-020, SEC-012
func TestEachCommandIsRecordedWithItsPayload(t *testing.T) {
	d := newDrive(t)
	d.register(1, ada, "translator", 600)

	var entries, nodes, bundles int

	for i, command := range everyCommand() {
		change, traced := command.Change()
		if !traced || command.Epoch != nil {
			continue
		}

		// The samples without an origin are those of operators, or of a node where it acts by itself.
		if command.Origin = judgedOrigin("/v1/operator/sample"); change.Node {
			command.Origin = bringerN0
			nodes++
		} else {
			command.Origin.Operator.ProofID = directory.Hash{byte(i), 1}
			command.Origin.Judged, command.Origin.Policy = genesis+2000, d.state.policy.current.Revision
		}

		if command.Rebundle != nil {
			held := []byte(`{"keys":[]}`)
			d.state.peers.set(&Peer{Domain: beta, State: directory.PeeringActive, Bundle: held,
				Endpoint: directory.BundleEndpoint{URL: "https://b:8400/bundle"}})
			command.Rebundle.Held, command.Rebundle.Bundle = directory.HashOf(held), []byte(`{"keys":[1]}`)
		}

		if r := d.at(2, command); r.Err != nil {
			continue
		}

		recorded := map[ledger.Entry]string{}
		for _, one := range d.state.Traced() {
			recorded[ledger.EntryOf(ledger.Command, one.Logged)] = string(one.Logged)
		}

		for _, entry := range d.state.history.entries {
			if entry[0] != ledger.Command {
				continue
			}

			entries++

			payload, ok := recorded[entry]
			if !ok {
				t.Errorf("%s: no record has the payload of the entry", change.Action)
			}

			if bundle := command.peerBundle(); bundle != nil {
				bundles++

				if !strings.HasSuffix(payload, `,"bundle":"`+directory.HashOf(bundle).String()+`"}`) {
					t.Errorf("%s: the bundle %s is not in %s", change.Action, bundle, payload)
				}
			}
		}
	}

	if entries < 8 || nodes < 4 || bundles == 0 {
		t.Errorf("%d entries, %d with a bundle, of %d commands of nodes", entries, bundles, nodes)
	}
}
