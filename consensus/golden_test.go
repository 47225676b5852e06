package consensus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// update writes the golden files anew. An encoding that is in a log never
// changes: a changed line is a new version.
var updateGolden = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs: got\n%s", file, got)
	}
}

// nextReads is what a later release may read.
var nextReads = Versions{2, 3, 4, directory.Formats{directory.StructurePage: {1, 2}}}

// every command and request, filled.
func everyCommand() []command {
	rid := directory.NewRID(genesis, [10]byte{1, 2, 3})
	g := granted{ada, 7, []grant{{directory.Mesh, true, nil, nil}, {directory.Only(beta), false, []string{"agent", "kind"}, []string{"base"}}}}
	doc := []byte(`{"base":"https://a"}`)
	return []command{
		{Register: &register{1, rid, directory.Salt{9}, ada, true, "translator", directory.KindAD, doc, 600, directory.Visibility{Mesh: true}, []uint64{3}, g, false, false, 0, nil, directory.Identity{}, false}},
		{Update: &update{1, rid, directory.Salt{9}, ada, false, 4, doc, 0, nil, g, 0, nil, false}},
		{Update: &update{Format: 1, RID: rid, Salt: directory.Salt{9}, Caller: ada, Statement: 4, Document: doc, Granted: g, Unchanged: true}},
		{Register: &register{1, rid, directory.Salt{9}, ada, false, "translator", directory.KindAD, doc, 600, directory.Visibility{Mesh: true}, nil, g, false, false, 0, &made{make([]byte, 32), make([]byte, 32), make([]byte, 64), &packed{1, []byte{0}}}, directory.Identity{}, false}},
		{Refresh: &refresh{rid, ada, false, 600, []uint64{}}},
		{Remove: &remove{1, rid, ada, true, nil}},
		{Expire: &sweep{1, []directory.RID{rid}}},
		{Announce: &sweep{1, []directory.RID{rid}}},
		{Attest: &attest{must(alphaNode("n0")), make([]byte, 32), []string{"a.b.c"}}},
		{Issue: &issue{12}},
		{Peer: &peer{beta, directory.PeeringActive, []byte(`{"keys":[]}`), []string{"https://b:8400"}, []string{"b:7946"}, true, directory.Hash{}, 0, false, directory.BundleEndpoint{}, directory.PeerRules{}, directory.PeerRules{}}},
		{Epoch: &epoch{1793491200, "bootstrap"}},
		{Regrant: &regrant{[]regrantItem{{rid, 4, g, nil}}}},
		{Rules: &Rules{Hold: 3600, PerOwner: 1000}},
		{Member: &member{must(alphaNode("n3")), "https://n3.alpha.test:8400", true, nextReads}},
		{Admit: &admission{must(alphaNode("n3")), 1793577600}},
		{Renew: &renew{ada, true, renewals{rid.AppendBinary(nil), []uint32{600}}}},
		{Redeem: &redeem{directory.Hash{8}, peer{beta, directory.PeeringActive, []byte("{}"), []string{"https://b:8400"}, nil, false, directory.Hash{9}, 1793577600, true, directory.BundleEndpoint{URL: "https://b:8400/bundle", Profile: directory.ProfileSPIFFE, ID: spiffeid.RequireFromPath(beta, "/roster/node/1")}, directory.PeerRules{}, directory.PeerRules{}}}},
		{Policy: &policy{[]byte("permit (principal, action, resource);"), nil}},
		{Claim: &claim{directory.Hash{1}, directory.Hash{2}, directory.Hash{3}, directory.Hash{4}, 60, 600}},
		{Settle: &settle{directory.Hash{1}, directory.Hash{4}, false, &answer{200, "application/json", []byte("{}"), "", "", ""}}},
		{Register: &register{Format: 1, RID: rid, Caller: tool, Commissioning: true, Agent: "translator", Kind: directory.KindAD, Document: doc, Lifetime: 600, Granted: g, For: ada}},
		{Transfer: &transfer{1, rid, directory.Salt{9}, ada, true, 4, []uint64{5}, g, &made{make([]byte, 32), make([]byte, 32), make([]byte, 64), &packed{1, []byte{0}}}}},
		{Rebundle: &rebundle{beta, directory.Hash{8}, []byte(`{"keys":[]}`)}},
		{Amend: &amend{peer{Domain: beta, State: directory.PeeringPending}, peer{Domain: beta, State: directory.PeeringActive, Mesh: true}}},
		{Remove: &remove{1, rid, ada, true, nil}, Spend: &spend{directory.Hash{7}, 1793577600}},
		{Peer: &peer{Domain: beta, State: directory.PeeringActive, Export: directory.PeerRules{Names: []string{"a*"}, Capabilities: []string{"c"}},
			Import: directory.PeerRules{Kinds: []directory.Kind{directory.KindAD}, Records: 5, Bytes: 6, MaxLifetime: 7, OnStale: directory.OnStaleHide, OwnerShare: 8}}},
		{Revoke: &revoke{directory.Hash{6}.String()}},
		{Decide: &decide{&verdict{4, directory.Hash{5}}}},
		{Rules: &Rules{PerOwner: 10, Owners: []OwnerRule{{must(directory.ParseIdentityPattern("spiffe://alpha.test/tool/*")), 0}, {must(directory.ParseIdentityPattern(ada.String())), 5}}}},
		{Rules: &Rules{BytesPerOwner: 1 << 24, Registrations: 1e6, Bytes: 1 << 32, OwnersBytes: []OwnerRule{{must(directory.ParseIdentityPattern("spiffe://alpha.test/roster/source/*")), 1 << 28}}}},
		{Policy: &policy{[]byte("permit (principal, action, resource);"), &[]uint64{0, 7}}},
		{Policy: &policy{nil, &[]uint64{}}},
		{Feature: &Numbers{2, 3, 4, map[directory.Structure]uint{directory.StructurePage: 2}}},
	}
}

func describe(data []byte) string {
	return hex.EncodeToString(data) + "\n" + must(cbor.Diagnose(data)) + "\n\n"
}

func TestTheEncodingOfCommands(t *testing.T) {
	var out strings.Builder
	seen := map[string]bool{}
	for _, c := range everyCommand() {
		b := &batch{firstVersion, genesis, []command{c}}
		data := must(b.encode())
		back, err := decodeBatch(data)
		if err != nil || !reflect.DeepEqual(back, b) {
			t.Errorf("read back is %+v, %v", back, err)
		}
		for i, v := 0, reflect.ValueOf(c); i < v.NumField(); i++ {
			if v.Field(i).Kind() == reflect.Pointer && !v.Field(i).IsNil() {
				fmt.Fprintf(&out, "# %s\n%s", v.Type().Field(i).Name, describe(data))
				seen[v.Type().Field(i).Name] = true
			}
		}
	}
	if n := reflect.TypeFor[command]().NumField() - 1; len(seen) != n { // without commandNext
		t.Errorf("%d of %d commands are shown", len(seen), n)
	}
	golden(t, "commands-1.golden", out.String())
}

// What the batcher puts together of encoded commands is what a batch encodes to.
func TestThePropositionIsABatch(t *testing.T) {
	var group []*proposal
	for _, c := range everyCommand() {
		group = append(group, &proposal{command: must(encoding.Marshal(c))})
	}
	want := must((&batch{firstVersion, genesis, everyCommand()}).encode())
	if got := must(encodeGroup(group, firstVersion, genesis)); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// everyMessage has samples of what members send each other.
func everyMessage() []any {
	rid := directory.NewRID(genesis, [10]byte{1, 2, 3})
	who := caller{ada, true, "req-1", directory.Hash{}, 0, nil}

	return []any{
		&request{Register: &registerRequest{who, "translator", directory.KindAD, []byte("{}"), 600, directory.Visibility{Mesh: true}, nil, false, false, false, nil, directory.Identity{}}},
		&request{Register: &registerRequest{who, "translator", directory.KindAD, []byte("{}"), 600, directory.Visibility{Mesh: true}, nil, false, false, false, &packed{1, []byte{0}}, directory.Identity{}}},
		&request{Refresh: &refreshRequest{who, rid, 0, nil, []uint64{}, 0}},
		&request{Refresh: &refreshRequest{who, rid, 60, []byte("{}"), []uint64{5}, 0}},
		&request{Refresh: &refreshRequest{who, rid, 60, []byte("{}"), nil, 4}},
		&request{Remove: &removeRequest{who, rid, nil}},
		&request{Renew: &renewRequest{who, renewals{rid.AppendBinary(nil), []uint32{600}}}},
		&request{Remove: &removeRequest{caller{Identity: ada, Proof: directory.Hash{7}, ProofUntil: 1793577600}, rid, nil}},
		&request{Register: &registerRequest{Caller: who, Agent: "translator", Kind: directory.KindAD, Document: []byte("{}"), For: bob}},
		&request{Transfer: &transferRequest{caller{Identity: ada, Judged: new(uint64(0))}, rid, bob, true, 4, []uint64{5}}},
		&request{Claim: &claim{directory.Hash{1}, directory.Hash{2}, directory.Hash{3}, directory.Hash{4}, 60, 600}},
		&request{Spend: &spend{directory.Hash{7}, 1793577600}},
		&request{Settle: &settle{directory.Hash{1}, directory.Hash{4}, true, nil}},
		&reply{Epoch: 1, Revision: 2, Kept: &answer{502, "", nil, directory.AgentFailed, "no", "/a"}},
		&request{Redeem: &redeem{directory.Hash{8}, peer{Domain: beta, State: directory.PeeringActive, Bundle: []byte("{}"), Addresses: []string{"https://b:8400"}}}},
		&reply{RID: rid, Epoch: 1, Revision: 2, Created: true, Granted: 600},
		&reply{Epoch: 1, Revision: 2, Each: []uint32{600, 0}, Refused: []unrenewed{{1, directory.Forbidden, "no"}}},
		replyOf(directory.Outcome{}, directory.Refuse(directory.BadDocument, "no").At("/base")),
		&reply{NotLeader: true},
		&message{[]cbor.RawMessage{must(encoding.Marshal(&request{Remove: &removeRequest{who, rid, nil}}))}},
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
		data := must(encoding.Marshal(message))
		back := reflect.New(reflect.TypeOf(message).Elem())
		if err := decoding.Unmarshal(data, back.Interface()); err != nil || !reflect.DeepEqual(back.Interface(), message) {
			t.Errorf("read back is %+v, want %+v (%v)", back.Interface(), message, err)
		}
		fmt.Fprintf(&out, "# %T\n%s", message, describe(data))
	}
	golden(t, "messages-1.golden", out.String())
}

// everyItem returns a state of whose snapshot each kind of item is a part, with every
// member of it set in one item at least.
func everyItem(t *testing.T) *state {
	d := newDrive(t)
	someone := must(directory.ParseIdentityPattern("spiffe://alpha.test/tool/*"))
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
	rules := directory.PeerRules{
		Names: []string{"a*"}, Capabilities: []string{"translate"}, Kinds: []directory.Kind{directory.KindAD},
		Records: 5, Bytes: 6, MaxLifetime: 7, OnStale: directory.OnStaleHide, OwnerShare: 8,
	}
	node := must(alphaNode("n0"))

	d.at(1, command{Rules: &Rules{
		Hold: 3600, PerOwner: 1000, Owners: []OwnerRule{{someone, 5}}, BytesPerOwner: 1 << 24,
		OwnersBytes: []OwnerRule{{someone, 1 << 28}}, Registrations: 1e6, Bytes: 1 << 32,
	}})
	d.at(1, command{Member: &member{ID: node, API: "https://n0.alpha.test:8400", Reads: nextReads}})
	d.at(1, command{Feature: &Numbers{1, 1, 1, map[directory.Structure]uint{directory.StructurePage: 2}}})
	d.at(1, command{Admit: &admission{must(alphaNode("n3")), genesis/1000 + 600}})
	d.at(1, command{Peer: &peerBeta})
	d.at(1, command{Peer: &peer{
		Domain: gamma, State: directory.PeeringTerminated, Bundle: []byte("{}"), Addresses: []string{"https://c"},
		Gossip: []string{"c:7946"}, Secret: directory.Hash{9}, Until: 1793577600, ByPeer: true, Export: rules, Import: rules,
		Endpoint: directory.BundleEndpoint{URL: "https://c/bundle", Profile: directory.ProfileSPIFFE, ID: spiffeid.RequireFromPath(gamma, "/roster/node/1")},
	}})
	d.at(2, command{Attest: &attest{node, make([]byte, 32), []string{"a.b.c"}}})
	d.at(2, command{Attest: &attest{node, append(make([]byte, 31), 1), []string{"a.b.c"}}})
	d.at(2, command{Policy: &policy{Text: []byte("permit (principal, action, resource);")}})

	d.register(3, ada, "kept", 600)
	d.register(3, ada, "kept", 600) // with the statement before it
	ends := d.registering(ada, "ends", 600)
	ends.Until = genesis/1000 + 7200
	ends.Visibility = directory.Visibility{Peers: []spiffeid.TrustDomain{beta}}
	ends.Granted.Grants = append(ends.Granted.Grants, grant{directory.Only(beta), false, []string{"agent", "kind"}, []string{"base"}})
	ends.Made = must(ends.prepared(t))
	d.at(3, command{Register: ends})
	given := d.registerFor(3, ada, "given", true)
	moves := &transfer{
		Format: 1, RID: given, Salt: directory.Salt{5}, Caller: tool, Any: true,
		Statement: d.entry(given).Statement, Granted: meshGrant(bob),
	}
	moves.Granted.Policy = d.state.policy
	if r := d.at(3, command{Transfer: moves}); r.err != nil {
		t.Fatal(r.err)
	}
	gone := d.register(3, ada, "removed", 600)
	expired := d.register(3, ada, "expired", 60)
	d.at(4, command{Remove: &remove{Format: 1, RID: gone, Caller: ada}})
	d.at(70, command{Expire: &sweep{1, []directory.RID{expired}}})
	d.register(70, ada, "expired", 60)

	for i, kept := range []*answer{
		{Status: 200, ContentType: "application/json", Body: []byte("{}")},
		{Problem: directory.AgentFailed, Detail: "no", Pointer: "/a"},
		nil,
	} {
		key := directory.Hash{byte(i + 1)}
		d.at(70, command{Claim: &claim{key, directory.Hash{2}, directory.Hash{3}, directory.Hash{4}, 60, 600}})
		d.at(70, command{Settle: &settle{key, directory.Hash{4}, kept == nil, kept}})
	}
	d.at(71, command{Remove: &remove{Format: 1, RID: gone, Caller: ada}, Spend: &spend{directory.Hash{7}, genesis/1000 + 120}})
	d.at(71, command{Decide: &decide{&verdict{d.state.policy, directory.Hash{5}}}})

	return d.state
}

// neverWritten are members of a snapshot's items that no state sets: a member that has
// gone is in no snapshot, and a later release makes what is imported.
var neverWritten = map[string]bool{"member.Gone": true, "provenance.ImportedFrom": true}

// A snapshot that forgets a member would restore another state and no test would see
// it, if the sample had nothing there.
func TestTheSampleOfASnapshotSetsEveryMember(t *testing.T) {
	s := everyItem(t)
	s.sealed, s.restored = "a restore of a backup", 3
	dec := decoding.NewDecoder(bytes.NewReader(freeze(t, s)))
	var h snapshotHeader
	if err := dec.Decode(&h); err != nil {
		t.Fatal(err)
	}

	set := map[string]bool{}
	note := func(item any) { noteMembers(reflect.ValueOf(item), set) }
	note(h)
	err := errors.Join(
		decodeEach(dec, h.Peerings, func(v peer) { note(v) }),
		decodeEach(dec, h.Keys, func(v keySnapshot) { note(v) }),
		decodeEach(dec, h.Formers, func(v former) { note(v) }),
		decodeEach(dec, h.Holds, func(v hold) { note(v) }),
		decodeEach(dec, h.Members, func(v member) { note(v) }),
		decodeEach(dec, h.Admitted, func(v admission) { note(v) }),
		decodeEach(dec, h.Spent, func(v spend) { note(v) }),
		decodeEach(dec, h.Claims, func(v claimed) { note(v) }),
		decodeEach(dec, h.Regs, func(v regSnapshot) { note(v) }),
	)
	for range h.Streams {
		var stream streamHeader
		err = errors.Join(err, dec.Decode(&stream))
		note(stream)
		err = errors.Join(err, decodeEach(dec, stream.Entries, func(v announcedSnapshot) { note(v) }))
	}
	if err != nil {
		t.Fatal(err)
	}

	if len(set) < 100 {
		t.Fatalf("only %d members were looked at", len(set))
	}
	for name, isSet := range set {
		if !isSet && !neverWritten[name] {
			t.Errorf("%s is zero in every item of the sample", name)
		}
	}
	back := must(readSnapshot(bytes.NewReader(freeze(t, s)), alpha, index.New(), &snapshotHeader{}))
	if !bytes.Equal(freeze(t, back), freeze(t, s)) {
		t.Error("it is read as another state")
	}
}

// noteMembers notes for each member of v, and of what is in it, whether it is set.
func noteMembers(v reflect.Value, set map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			noteMembers(v.Elem(), set)
		}
	case reflect.Slice:
		for i := range v.Len() {
			noteMembers(v.Index(i), set)
		}
	case reflect.Struct:
		if _, text := v.Interface().(interface{ MarshalText() ([]byte, error) }); text {
			return
		}
		for i := range v.NumField() {
			member := v.Type().Field(i)
			if !member.IsExported() {
				continue
			}
			name := v.Type().Name() + "." + member.Name
			set[name] = set[name] || !v.Field(i).IsZero()
			noteMembers(v.Field(i), set)
		}
	}
}

func TestTheEncodingOfASnapshot(t *testing.T) {
	var out strings.Builder
	for rest := freeze(t, everyItem(t)); len(rest) > 0; {
		var item cbor.RawMessage
		var err error
		if rest, err = cbor.UnmarshalFirst(rest, &item); err != nil {
			t.Fatal(err)
		}
		out.WriteString(describe(item))
	}
	golden(t, "snapshot-1.golden", out.String())
}

func TestABackupOfEveryItemIsInspected(t *testing.T) {
	var b bytes.Buffer
	if err := everyItem(t).snapshot().backup(&b, backupHeader{backupVersion, must(alphaNode("n0")), 1}); err != nil {
		t.Fatal(err)
	}
	if info := inspect(t, b.Bytes()); info.Registrations != 4 || len(info.Peers) != 2 {
		t.Errorf("got %+v", info)
	}
}

// What is damaged is no state.
func TestADamagedRegistrationInASnapshot(t *testing.T) {
	e := &directory.Entry{Document: directory.LoadDocument(directory.KindAD, []byte(`{"description":"`+strings.Repeat("An agent. ", 100)+`"}`))}
	e.Rest()
	resting := e.Document.Resting()
	for name, w := range map[string]regSnapshot{
		"a document":                   {Kind: directory.KindAD, Document: resting[:len(resting)-3]},
		"a document with a projection": {Kind: directory.KindAD, Document: resting[:len(resting)-3], Packed: *pack(directory.Document{}, &directory.Projection{})},
		"a projection":                 {Kind: directory.KindAD, Document: resting, Packed: packed{directory.PackedVersion, []byte{200}}},
	} {
		if _, err := w.thaw(alpha); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// A backup's hash is over documents as they were written, however they rest.
func TestTheHashOfABackupIsOfDocumentsAwake(t *testing.T) {
	long := directory.LoadDocument(directory.KindAD, []byte(`{"description":"`+strings.Repeat("An agent. ", 100)+`"}`))
	e := &directory.Entry{Document: long}
	e.Rest()
	if len(e.Document.Resting()) == len(long.Bytes()) {
		t.Fatal("it does not rest")
	}
	sum := func(raw []byte) []byte {
		h := sha256.New()
		if err := (&regSnapshot{Kind: directory.KindAD, Document: raw}).sum(h); err != nil {
			t.Fatal(err)
		}
		return h.Sum(nil)
	}
	if !bytes.Equal(sum(long.Bytes()), sum(e.Document.Resting())) {
		t.Error("it has two hashes")
	}
}

func TestALogEntryOfANewerRelease(t *testing.T) {
	for name, data := range map[string][]byte{
		"version":    must(encoding.Marshal(map[int]any{1: newestLogVersion + 1, 2: 0, 3: []any{}})),
		"command":    must(encoding.Marshal(map[int]any{1: 1, 2: 0, 3: []any{map[int]any{99: map[int]any{}}}})),
		"member":     must(encoding.Marshal(map[int]any{1: 1, 2: 0, 3: []any{map[int]any{8: map[int]any{1: 1, 2: 1}}}})),
		"not at all": []byte("x"),
	} {
		if _, err := decodeBatch(data); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
