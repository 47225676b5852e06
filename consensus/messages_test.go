package consensus

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// everyMessage has samples of what members send each other.
func everyMessage() []any {
	rid := directory.NewRID(genesis, [10]byte{1, 2, 3})
	who := message.Caller{Identity: ada, Commissioning: true, RequestID: "req-1", Proof: directory.Hash{},
		ProofUntil: 0, PolicyVersion: nil}

	return []any{
		&message.Request{Register: &message.Register{Caller: who, Agent: "translator", Kind: directory.KindAD,
			Document: []byte("{}"), Lifetime: 600, Visibility: directory.Visibility{Mesh: true}, IfMatch: nil,
			Present: false, Absent: false, Keep: false, Packed: nil, For: directory.Identity{}}},
		&message.Request{Mark: []byte{1, 2}, Register: &message.Register{Caller: who, Agent: "translator",
			Kind: directory.KindAD, Document: []byte("{}"), Lifetime: 600,
			Visibility: directory.Visibility{Mesh: true}}},
		&message.Request{Refresh: &message.Refresh{Caller: who, RID: rid, Lifetime: 0, Patch: nil, IfMatch: []uint64{},
			Statement: 0}},
		&message.Request{Refresh: &message.Refresh{Caller: who, RID: rid, Lifetime: 60, Patch: []byte("{}"),
			IfMatch: []uint64{5}, Statement: 0}},
		&message.Request{Refresh: &message.Refresh{Caller: who, RID: rid, Lifetime: 60, Patch: []byte("{}"),
			IfMatch: nil, Statement: 4}},
		&message.Request{Remove: &message.Remove{Caller: who, RID: rid, IfMatch: nil}},
		&message.Request{Renew: &message.Renew{Caller: who,
			Renewals: state.Renewals{RIDs: rid.AppendBinary(nil), Lifetimes: []uint32{600}}}},
		&message.Request{Remove: &message.Remove{Caller: message.Caller{Identity: ada, Proof: directory.Hash{7},
			ProofUntil: 1793577600}, RID: rid, IfMatch: nil}},
		&message.Request{Register: &message.Register{Caller: who, Agent: "translator", Kind: directory.KindAD,
			Document: []byte("{}"), For: bob}},
		&message.Request{Transfer: &message.Transfer{Caller: message.Caller{Identity: ada,
			PolicyVersion: new(uint64(0))},
			RID: rid, To: bob, Statement: 4, IfMatch: []uint64{5}}},
		&message.Request{Claim: &state.Claim{Key: directory.Hash{1}, Caller: directory.Hash{2},
			Body: directory.Hash{3}, Holder: directory.Hash{4}, Lease: 60, Window: 600}},
		&message.Request{Spend: &state.Spend{Proof: directory.Hash{7}, Until: 1793577600}},
		&message.Request{Settle: &state.Settle{Key: directory.Hash{1}, Holder: directory.Hash{4}, Release: true,
			Answer: nil}},
		&message.Reply{Epoch: 1, Revision: 2, Kept: &state.Answer{Status: 502, ContentType: "", Body: nil,
			Problem: directory.AgentFailed, Detail: "no", Pointer: "/a"}},
		&message.Request{Redeem: &state.Redeem{Secret: directory.Hash{8},
			Peer: state.Peer{Domain: beta, State: directory.PeeringActive, Bundle: []byte("{}"),
				Addresses: []string{"https://b:8400"}}}},
		&message.Reply{RID: rid, Epoch: 1, Revision: 2, Created: true, Granted: 600},
		&message.Reply{Epoch: 1, Revision: 2, Each: []uint32{600, 0},
			Refused: []message.Unrenewed{{Item: 1, Problem: directory.Forbidden, Detail: "no"}}},
		message.ReplyOf(directory.Outcome{}, directory.Refuse(directory.BadDocument, "no").At("/base")),
		&message.Reply{NotLeader: true},
		&message.Writes{Requests: []cbor.RawMessage{
			valueOf(state.Marshal(&message.Request{Remove: &message.Remove{Caller: who, RID: rid, IfMatch: nil}})),
		}},
		&message.Answers{Replies: []message.Reply{{NotLeader: true}}}, &message.Answers{NotLeader: true},
		&message.Answers{Replies: []message.Reply{{Epoch: 1, Revision: 2}},
			Commit: &message.CommitNotice{Term: 3, Index: 7, Of: 2}},
		&message.PresenceRequest{Time: genesis}, &message.PresenceAnswer{Epoch: 1, Revision: 2},
		&message.PresenceAnswer{Epoch: 1, Revision: 2, Time: genesis}, &message.ReadRequest{},
		&message.TermRequest{Term: 3}, &message.TermAnswer{Term: 3},
		&message.Request{Order: &message.Order{Verb: message.RemoveMember, ID: valueOf(alphaNode("n3"))}},
		&message.Request{Order: &message.Order{Verb: message.TransferLeadership}},
		&message.DecisionRequest{Entry: 8},
		&message.DecisionAnswer{Decision: state.Decision{Epoch: 1, Basis: 7, Hash: directory.Hash{9}},
			Entry: directory.Hash{1}},
		&message.CommandRequest{Command: state.Command{Revoke: &state.Revoke{Key: "key"}}},
		&message.CommandAnswer{Refusal: "refused"},
		&message.EntriesRequest{Epoch: 1793491200, From: 7}, &message.EntriesAnswer{Entries: []byte{0, 33, 1}},
		&message.RootRequest{Epoch: 1793491200, Size: 7}, &message.RootAnswer{Size: 7, Root: directory.Hash{9}},
		&message.StatementsRequest{Behind: []byte{7}}, &message.StatementsAnswer{Records: []history.Record{{
			RID: rid, Epoch: 1793491200, Index: 7, At: 1793491201, Agent: "agent", Kept: []byte{1},
		}}, Last: []byte{8}},
		&message.VouchRequest{ID: valueOf(alphaNode("n3"))}, &message.VouchAnswer{Member: true},
		&message.JoinRequest{Address: "n3:8402", API: "https://n3:8400", Reader: true, Epoch: 1, Revision: 2,
			Expect: 3, Found: []Member{{ID: valueOf(alphaNode("n3")), Address: "n3:8402"}}, Reads: nextReads},
		&message.JoinAnswer{Done: true, Leader: &Member{ID: valueOf(alphaNode("n3")), Address: "n3:8402"},
			Empty: &message.JoinRequest{Address: "n2:8402"}, Problem: directory.Forbidden, Detail: "no"},
		&message.RestoreAnswer{Done: message.Restored{Backup: directory.Position{Epoch: 1, Revision: 2},
			Before: directory.Position{Epoch: 1, Revision: 3}, Now: directory.Position{Epoch: 4, Revision: 4},
			Registrations: 5}, Problem: directory.Conflict, Detail: "no"},
		&message.Aside{Text: []byte("what is there beside the log?")}, &message.ContactsRequest{},
		&message.ContactsAnswer{Silent: map[spiffeid.ID]int64{valueOf(alphaNode("n3")): 250}},
		&message.Request{Policy: &state.Policy{Text: []byte("permit(principal, action, resource);")},
			Operator: &state.OperatorRequest{By: ada, Method: "PUT", Target: "/v1/operator/policy", Body: []byte("{}"),
				BodyHash: directory.Hash{5}, Proof: "a.b.c", ProofID: directory.Hash{6}, ProofUntil: 1793577600}},
		&message.Request{Order: &message.Order{Verb: message.AdmitNode, Pattern: "spiffe://alpha.test/roster/node/*",
			Max: 3}},
		&message.Request{Order: &message.Order{Verb: message.NoteOrder, Action: directory.ActionRotateKey,
			Target: valueOf(alphaNode("n3")).String()}},
		&message.Request{Offer: &message.Offer{Caller: who, RID: rid, Step: directory.TransferOffer, To: bob,
			Lifetime: 600, Statement: 4, IfMatch: []uint64{5}}},
		&message.Request{Offer: &message.Offer{Caller: who, RID: rid, Step: directory.TransferAccept, Statement: 4,
			IfMatch: nil}},
		&message.Reply{RID: rid, Epoch: 1, Revision: 2, OfferUntil: 1793577600},
		&message.Request{Erase: &state.Erase{RID: rid}},
		&message.Request{Pin: &state.Pin{Node: valueOf(alphaNode("n3")), Lines: 5, Head: directory.Hash{6}}},
		&message.Request{Cosign: &message.Cosign{Checkpoint: state.Cosign{Origin: "beta.test/roster/1793491200", Old: 3,
			Size: 4, Root: directory.Hash{5}, Note: "note"}, Proof: []directory.Hash{{6}}}},
		&message.Reply{Epoch: 1, Revision: 2, CosignedAt: 1793577600},
		&message.JoinRequest{Address: "n3:8402", Reads: nextReads, Empty: true},
		&message.JoinRequest{
			Address: "n3:8402", Reads: nextReads, History: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Fresh: true,
		},
		&message.JoinAnswer{History: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Voter: true},
	}
}

func TestTheEncodingOfForwardedRequests(t *testing.T) {
	var out strings.Builder
	for _, message := range everyMessage() {
		data := valueOf(state.Marshal(message))

		back := reflect.New(reflect.TypeOf(message).Elem())
		if err := state.Unmarshal(data, back.Interface()); err != nil || !reflect.DeepEqual(back.Interface(), message) {
			t.Errorf("read back is %+v, want %+v (%v)", back.Interface(), message, err)
		}

		fmt.Fprintf(&out, "# %T\n%s", message, describe(data))
	}

	golden(t, "messages-1.golden", out.String())
}
