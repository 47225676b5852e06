package consensus

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// everyMessage has samples of what members send each other.
func everyMessage() []any {
	rid := directory.NewRID(genesis, [10]byte{1, 2, 3})
	who := caller{ada, true, "req-1", directory.Hash{}, 0, nil}

	return []any{
		&request{Register: &registerRequest{who, "translator", directory.KindAD, []byte("{}"), 600, directory.Visibility{Mesh: true}, nil, false, false, false, nil, directory.Identity{}}},
		&request{Register: &registerRequest{who, "translator", directory.KindAD, []byte("{}"), 600, directory.Visibility{Mesh: true}, nil, false, false, false, &state.Packed{Version: 1, Code: []byte{0}}, directory.Identity{}}},
		&request{Refresh: &refreshRequest{who, rid, 0, nil, []uint64{}, 0}},
		&request{Refresh: &refreshRequest{who, rid, 60, []byte("{}"), []uint64{5}, 0}},
		&request{Refresh: &refreshRequest{who, rid, 60, []byte("{}"), nil, 4}},
		&request{Remove: &removeRequest{who, rid, nil}},
		&request{Renew: &renewRequest{who, state.Renewals{RIDs: rid.AppendBinary(nil), Lifetimes: []uint32{600}}}},
		&request{Remove: &removeRequest{caller{Identity: ada, Proof: directory.Hash{7}, ProofUntil: 1793577600}, rid, nil}},
		&request{Register: &registerRequest{Caller: who, Agent: "translator", Kind: directory.KindAD, Document: []byte("{}"), For: bob}},
		&request{Transfer: &transferRequest{caller{Identity: ada, Judged: new(uint64(0))}, rid, bob, true, 4, []uint64{5}}},
		&request{Claim: &state.Claim{Key: directory.Hash{1}, Caller: directory.Hash{2}, Body: directory.Hash{3}, Holder: directory.Hash{4}, Lease: 60, Window: 600}},
		&request{Spend: &state.Spend{Proof: directory.Hash{7}, Until: 1793577600}},
		&request{Settle: &state.Settle{Key: directory.Hash{1}, Holder: directory.Hash{4}, Release: true, Answer: nil}},
		&reply{Epoch: 1, Revision: 2, Kept: &state.Answer{Status: 502, ContentType: "", Body: nil, Problem: directory.AgentFailed, Detail: "no", Pointer: "/a"}},
		&request{Redeem: &state.Redeem{Secret: directory.Hash{8}, Peer: state.Peer{Domain: beta, State: directory.PeeringActive, Bundle: []byte("{}"), Addresses: []string{"https://b:8400"}}}},
		&reply{RID: rid, Epoch: 1, Revision: 2, Created: true, Granted: 600},
		&reply{Epoch: 1, Revision: 2, Each: []uint32{600, 0}, Refused: []unrenewed{{1, directory.Forbidden, "no"}}},
		replyOf(directory.Outcome{}, directory.Refuse(directory.BadDocument, "no").At("/base")),
		&reply{NotLeader: true},
		&message{[]cbor.RawMessage{must(state.Marshal(&request{Remove: &removeRequest{who, rid, nil}}))}},
		&answers{Replies: []reply{{NotLeader: true}}}, &answers{NotLeader: true}, &answers{Replies: []reply{{Epoch: 1, Revision: 2}}, Told: &told{3, 7, 2}},
		&presenceWord{genesis}, &presenceAnswer{Epoch: 1, Revision: 2}, &presenceAnswer{Epoch: 1, Revision: 2, Time: genesis}, &readWord{}, &termWord{3}, &termAnswer{3},
		&request{Order: &order{verbRemove, must(alphaNode("n3"))}}, &request{Order: &order{Verb: verbTransfer}},
		&vouchWord{must(alphaNode("n3"))}, &vouchAnswer{true},
		&joinWord{"n3:8402", "https://n3:8400", true, 1, 2, 3, []Member{{must(alphaNode("n3")), "n3:8402"}}, nextReads},
		&joinAnswer{true, &Member{must(alphaNode("n3")), "n3:8402"}, &joinWord{Address: "n2:8402"}, directory.Forbidden, "no"},
		&restoreAnswer{Restored{directory.Position{Epoch: 1, Revision: 2}, directory.Position{Epoch: 1, Revision: 3}, directory.Position{Epoch: 4, Revision: 4}, 5}, directory.Conflict, "no"},
		&asideWord{[]byte("what is there beside the log?")}, &contactsWord{}, &contactsAnswer{map[spiffeid.ID]int64{must(alphaNode("n3")): 250}},
	}
}

func TestTheEncodingOfForwardedRequests(t *testing.T) {
	var out strings.Builder
	for _, message := range everyMessage() {
		data := must(state.Marshal(message))
		back := reflect.New(reflect.TypeOf(message).Elem())
		if err := state.Unmarshal(data, back.Interface()); err != nil || !reflect.DeepEqual(back.Interface(), message) {
			t.Errorf("read back is %+v, want %+v (%v)", back.Interface(), message, err)
		}
		fmt.Fprintf(&out, "# %T\n%s", message, describe(data))
	}
	golden(t, "messages-1.golden", out.String())
}
