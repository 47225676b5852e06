package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// updateGolden writes the golden files anew. An encoding that is in a log never
// changes: a changed line is a new version.
var updateGolden = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	directorytest.Golden(t, *updateGolden, name, []byte(got))
}

// nextReads is what a later release may read.
var nextReads = Versions{2, 3, 4, signed.Formats{signed.StructurePage: {1, 2}}}

// every command and request, filled.
func everyCommand() []Command {
	rid := directory.NewRID(genesis, [10]byte{1, 2, 3})
	g := Granted{ada, 7, []grant{{directory.Mesh, true, nil, nil},
		{directory.Only(beta), false, []string{"agent", "kind"}, []string{"base"}}}}
	doc := []byte(`{"base":"https://a"}`)

	return []Command{
		{Register: &Register{1, rid, signed.Salt{9}, ada, true, "translator", directory.KindAD, doc, 600,
			directory.Visibility{Mesh: true}, []uint64{3}, g, false, false, 0, nil, directory.Identity{}, ""}},
		{Update: &Update{1, rid, signed.Salt{9}, ada, false, 4, doc, 0, nil, g, 0, nil, false}},
		{Update: &Update{Format: 1, RID: rid, Salt: signed.Salt{9}, Caller: ada, Statement: 4, Document: doc,
			Granted: g, Unchanged: true}},
		{Register: &Register{1, rid, signed.Salt{9}, ada, false, "translator", directory.KindAD, doc, 600,
			directory.Visibility{Mesh: true}, nil, g, false, false, 0,
			&Made{make([]byte, 32), make([]byte, 32), make([]byte, 64), &Packed{1, []byte{0}}},
			directory.Identity{}, ""}},
		{Refresh: &Refresh{rid, ada, false, 600, []uint64{}}},
		{Remove: &Remove{1, rid, ada, true, nil}},
		{Expire: &Sweep{1, []directory.RID{rid}}},
		{Announce: &Sweep{1, []directory.RID{rid}}},
		{Attest: &Attest{must(alphaNode("n0")), make([]byte, 32), []string{"a.b.c"}, nil}},
		{Issue: &Issue{12}},
		{Peer: &Peer{beta, directory.PeeringActive, []byte(`{"keys":[]}`), []string{"https://b:8400"},
			[]string{"b:7946"}, true, directory.Hash{}, 0, false, directory.BundleEndpoint{}, directory.PeerRules{},
			directory.PeerRules{}}},
		{Epoch: &Epoch{1793491200, "bootstrap"}},
		{Regrant: &Regrant{[]RegrantItem{{rid, 4, g, nil}}}},
		{Rules: &Rules{Hold: 3600, PerOwner: 1000}},
		{Member: &Member{ID: must(alphaNode("n3")), API: "https://n3.alpha.test:8400", Gone: true, Reads: nextReads}},
		{Admit: &Admission{ID: must(alphaNode("n3")), Until: 1793577600}},
		{Renew: &Renew{ada, true, Renewals{rid.AppendBinary(nil), []uint32{600}}}},
		{Redeem: &Redeem{directory.Hash{8}, Peer{beta, directory.PeeringActive, []byte("{}"),
			[]string{"https://b:8400"}, nil, false, directory.Hash{9}, 1793577600, true,
			directory.BundleEndpoint{URL: "https://b:8400/bundle", Profile: directory.ProfileSPIFFE,
				ID: spiffeid.RequireFromPath(beta, "/roster/node/1")}, directory.PeerRules{}, directory.PeerRules{}},
			""}},
		{Redeem: &Redeem{directory.HashOf([]byte("secret")), Peer{Domain: beta}, "secret"}},
		{Policy: &Policy{[]byte("permit (principal, action, resource);"), nil}},
		{Claim: &Claim{directory.Hash{1}, directory.Hash{2}, directory.Hash{3}, directory.Hash{4}, 60, 600}},
		{Settle: &Settle{directory.Hash{1}, directory.Hash{4}, false,
			&Answer{200, "application/json", []byte("{}"), "", "", ""}}},
		{Register: &Register{Format: 1, RID: rid, Caller: tool, Commissioning: true, Agent: "translator",
			Kind: directory.KindAD, Document: doc, Lifetime: 600, Granted: g, For: ada}},
		{Transfer: &Transfer{1, rid, signed.Salt{9}, ada, 4, []uint64{5}, g,
			&Made{make([]byte, 32), make([]byte, 32), make([]byte, 64), &Packed{1, []byte{0}}}, ""}},
		{Rebundle: &Rebundle{beta, directory.Hash{8}, []byte(`{"keys":[]}`)}},
		{Amend: &Amend{Was: Peer{Domain: beta, State: directory.PeeringPending},
			Peer: Peer{Domain: beta, State: directory.PeeringActive, Mesh: true}}},
		{Amend: &Amend{Was: Peer{Domain: beta, State: directory.PeeringActive},
			Peer:     Peer{Domain: beta, State: directory.PeeringTerminated, ByPeer: true},
			Farewell: operatorOrigin("/v1/operator/peers/change").Operator}},
		{Remove: &Remove{1, rid, ada, true, nil}, Spend: &Spend{directory.Hash{7}, 1793577600}},
		{Peer: &Peer{Domain: beta, State: directory.PeeringActive,
			Export: directory.PeerRules{Names: []string{"a*"}, Capabilities: []string{"c"}},
			Import: directory.PeerRules{Kinds: []directory.Kind{directory.KindAD}, Records: 5, Bytes: 6,
				MaxLifetime: 7, OnStale: directory.OnStaleHide, OwnerShare: 8}}},
		{Revoke: &Revoke{directory.Hash{6}.String()}},
		{Decide: &Decide{&Verdict{4, directory.Hash{5}}}},
		{Rules: &Rules{PerOwner: 10,
			Owners: []OwnerRule{{must(directory.ParseIdentityPattern("spiffe://alpha.test/tool/*")), 0},
				{must(directory.ParseIdentityPattern(ada.String())), 5}}}},
		{Rules: &Rules{BytesPerOwner: 1 << 24, Registrations: 1e6, Bytes: 1 << 32,
			OwnersBytes: []OwnerRule{{must(directory.ParseIdentityPattern("spiffe://alpha.test/roster/source/*")),
				1 << 28}}}},
		{Policy: &Policy{[]byte("permit (principal, action, resource);"), &[]uint64{0, 7}}},
		{Policy: &Policy{nil, &[]uint64{}}},
		{Feature: &Numbers{2, 3, 4, map[signed.Structure]uint{signed.StructurePage: 2}}},
		{Order: &Order{directory.ActionRemoveMember, must(alphaNode("n3")).String()},
			Origin: operatorOrigin("/v1/operator/raft/remove")},
		{Admit: &Admission{Pattern: "spiffe://alpha.test/roster/node/*", Max: 3},
			Origin: &Origin{From: must(alphaNode("n0"))}},
		{Member: &Member{ID: must(alphaNode("n3")), Reads: nextReads, Listeners: []string{"10.0.0.1:8400",
			"[2001:db8::1]:8402"}}},
		{Offer: &Offer{rid, ada, tool, 4, 600, []uint64{5}}},
		{Accept: &Accept{1, rid, signed.Salt{9}, tool, 4, []uint64{5}, g,
			&Made{make([]byte, 32), make([]byte, 32), make([]byte, 64), &Packed{1, []byte{0}}}}},
		{CloseOffer: &CloseOffer{rid, ada, []uint64{5}}},
		{Register: &Register{Format: 1, RID: rid, Caller: ada, Agent: "translator", Kind: directory.KindAD,
			Document: doc, Lifetime: 600, Granted: g, ImportedFrom: "https://registry.example"}},
		{Transfer: &Transfer{1, rid, signed.Salt{9}, ada, 4, []uint64{5}, g, nil, "translator"},
			Origin: judgedOrigin("/ad/r/translator/transfer")},
		{Attest: &Attest{must(alphaNode("n0")), make([]byte, 32), []string{"a.b.c"}, append(make([]byte, 31), 2)}},
		{Cosign: &Cosign{"beta.test/roster/1793491200", 3, 4, directory.Hash{5},
			"beta.test/roster/1793491200\n4\nBQ==\n\n— beta.test/roster/1793491200 AAAA\n"}},
		{Erase: &Erase{rid}},
		{Pin: &Pin{Bundle: []byte(`{"keys":[]}`)}},
		{Pin: &Pin{Node: must(alphaNode("n0")), Lines: 5, Head: directory.Hash{6}}},
		{Witnessed: &Witnessed{1793491200, 3, directory.Hash{5}, "— beta.test/roster/1793491200/witness AAAA\n", 0}},
	}
}

func describe(data []byte) string {
	return hex.EncodeToString(data) + "\n" + must(cbor.Diagnose(data)) + "\n\n"
}

func TestTheEncodingOfCommands(t *testing.T) {
	var out strings.Builder

	seen := map[string]bool{}
	for _, c := range everyCommand() {
		b := &Batch{FirstVersion, genesis, []Command{c}}
		data := must(Marshal(b))

		back, err := DecodeBatch(data)
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

	if n := reflect.TypeFor[Command]().NumField() - 1; len(seen) != n { // without commandNext
		t.Errorf("%d of %d commands are shown", len(seen), n)
	}

	golden(t, "commands-1.golden", out.String())
}

// A batch of encoded commands is encoded as the batch of the commands is.
func TestThePropositionIsABatch(t *testing.T) {
	var commands []cbor.RawMessage
	for _, c := range everyCommand() {
		commands = append(commands, must(Marshal(&c)))
	}

	want := must(Marshal(&Batch{FirstVersion, genesis, everyCommand()}))
	if got := must(EncodeBatch(FirstVersion, genesis, commands)); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// everyItem returns a state of whose snapshot each kind of item is a part, with every
// member of it set in one item at least.
func everyItem(t *testing.T) *State {
	d := newDrive(t)
	someone := must(directory.ParseIdentityPattern("spiffe://alpha.test/tool/*"))
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
	rules := directory.PeerRules{
		Names: []string{"a*"}, Capabilities: []string{"translate"}, Kinds: []directory.Kind{directory.KindAD},
		Records: 5, Bytes: 6, MaxLifetime: 7, OnStale: directory.OnStaleHide, OwnerShare: 8,
	}
	node := must(alphaNode("n0"))

	d.at(1, Command{Rules: &Rules{
		Hold: 3600, PerOwner: 1000, Owners: []OwnerRule{{someone, 5}}, BytesPerOwner: 1 << 24,
		OwnersBytes: []OwnerRule{{someone, 1 << 28}}, Registrations: 1e6, Bytes: 1 << 32,
	}})
	d.at(1, Command{Member: &Member{ID: node, API: "https://n0.alpha.test:8400", Reads: nextReads}})
	d.at(1, Command{Feature: &Numbers{1, 1, 1, map[signed.Structure]uint{signed.StructurePage: 2}}})
	d.at(1, Command{Admit: &Admission{ID: must(alphaNode("n3")), Until: genesis/1000 + 600}})
	d.at(1, Command{Peer: &peerBeta})
	d.at(1, Command{Peer: &Peer{
		Domain: gamma, State: directory.PeeringTerminated, Bundle: []byte("{}"), Addresses: []string{"https://c"},
		Gossip: []string{"c:7946"}, Secret: directory.Hash{9}, Until: 1793577600, ByPeer: true, Export: rules,
		Import: rules,
		Endpoint: directory.BundleEndpoint{URL: "https://c/bundle", Profile: directory.ProfileSPIFFE,
			ID: spiffeid.RequireFromPath(gamma, "/roster/node/1")},
	}})
	d.at(2, Command{Attest: &Attest{node, make([]byte, 32), []string{"a.b.c"}, nil}})
	d.at(2, Command{Attest: &Attest{node, append(make([]byte, 31), 1), []string{"a.b.c"}, nil}})
	d.at(2, Command{Policy: &Policy{Text: []byte("permit (principal, action, resource);")}})

	d.register(3, ada, "kept", 600)
	d.register(3, ada, "kept", 600) // with the statement before it
	ends := d.registering(ada, "ends", 600)
	ends.Until = genesis/1000 + 7200
	ends.Visibility = directory.Visibility{Peers: []spiffeid.TrustDomain{beta}}
	ends.Granted.Grants = append(ends.Granted.Grants,
		grant{directory.Only(beta), false, []string{"agent", "kind"}, []string{"base"}})
	ends.Made = must(ends.prepared(t))
	d.at(3, Command{Register: ends})
	given := d.registerFor(3, ada, "given", true)
	moves := &Transfer{
		Format: 1, RID: given, Salt: signed.Salt{5}, Caller: tool,
		Statement: d.entry(given).Statement, Granted: meshGrant(bob), Agent: d.entry(given).Agent,
	}

	moves.Granted.Policy = d.state.policy.basis
	d.applies(3, Command{Transfer: moves})

	imported := d.registering(ada, "imported", 600)
	imported.Made, imported.ImportedFrom = nil, "https://registry.example"
	d.at(3, Command{Register: imported})

	gone := d.register(3, ada, "removed", 600)
	expired := d.register(3, ada, "expired", 60)
	d.at(4, Command{Remove: &Remove{Format: 1, RID: gone, Caller: ada}})
	d.at(70, Command{Expire: &Sweep{1, []directory.RID{expired}}})
	d.register(70, ada, "expired", 60)

	for i, kept := range []*Answer{
		{Status: 200, ContentType: "application/json", Body: []byte("{}")},
		{Problem: directory.AgentFailed, Detail: "no", Pointer: "/a"},
		nil,
	} {
		key := directory.Hash{byte(i + 1)}
		d.at(70, Command{Claim: &Claim{key, directory.Hash{2}, directory.Hash{3}, directory.Hash{4}, 60, 600}})
		d.at(70, Command{Settle: &Settle{key, directory.Hash{4}, kept == nil, kept}})
	}

	d.at(71, Command{Remove: &Remove{Format: 1, RID: gone, Caller: ada},
		Spend: &Spend{directory.Hash{7}, genesis/1000 + 120}})
	d.at(71, Command{Decide: &Decide{&Verdict{d.state.policy.basis, directory.Hash{5}}}})

	return d.state
}

// neverWritten are members of a snapshot's items that no state sets: a member that has
// gone is in no snapshot.
var neverWritten = map[string]bool{"Member.Gone": true}

// A snapshot that forgets a member would restore another state and no test would see
// it, if the sample had nothing there.
func TestTheSampleOfASnapshotSetsEveryMember(t *testing.T) {
	s := everyItem(t)
	s.history.sealed, s.history.restored = "a restore of a backup", 3
	s.history.restoredBy, s.history.commands = judgedOrigin("/v1/operator/snapshot"), 5
	s.members.standing["spiffe://alpha.test/roster/node/*"] = 3
	s.decided["nodes spiffe://alpha.test/roster/node/*"] = []Command{{
		Admit:  &Admission{Pattern: "spiffe://alpha.test/roster/node/*", Max: 3},
		Origin: judgedOrigin("/v1/operator/raft/admit"),
	}}
	s.policy.current.Replaces, s.policy.current.Origin = &[]uint64{2}, operatorOrigin("/v1/operator/policy")

	for id, member := range s.members.byID {
		member.Listeners = []string{"10.0.0.1:8400"}
		s.members.byID[id] = member
	}

	for node, key := range s.keys.byNode {
		key.Cosign = append(make([]byte, 31), 2)
		s.keys.byNode[node] = key
	}

	s.witness.put(CosignedLog{"beta.test/roster/1793491200", 4, directory.Hash{5}, "note", genesis / 1000})
	s.erasures.add(Erasure{directory.NewRID(genesis, [10]byte{9}), 4, operatorOrigin("/erase")})
	s.witness.own = Witnessed{s.history.epoch, 1, directory.Hash{5}, "— line\n", 7}
	s.offers.put(openOffer{directory.NewRID(genesis, [10]byte{1}), ada, bob, 4, genesis/1000 + 600})
	s.ordered.spend(s.history.restoredBy.proof(), 0)
	s.ordered.forgotten = genesis / 1000
	s.pins.bundle, s.pins.audited[must(alphaNode("n0"))] = directory.Hash{5}, genesis/1000
	dec := NewDecoder(bytes.NewReader(freeze(t, s)))

	var h Header
	directorytest.Must(t, dec.Decode(&h))

	set := map[string]bool{}
	note := func(item any) { noteMembers(reflect.ValueOf(item), set) }
	note(h)

	err := errors.Join(
		decodeEach(dec, h.Peerings, func(v Peer) { note(v) }),
		decodeEach(dec, h.Keys, func(v keySnapshot) { note(v) }),
		decodeEach(dec, h.Formers, func(v former) { note(v) }),
		decodeEach(dec, h.Holds, func(v hold) { note(v) }),
		decodeEach(dec, h.Members, func(v Member) { note(v) }),
		decodeEach(dec, h.Admitted, func(v Admission) { note(v) }),
		decodeEach(dec, h.Standing, func(v Admission) { note(v) }),
		decodeEach(dec, h.Spent, func(v Spend) { note(v) }),
		decodeEach(dec, h.Ordered, func(v Spend) { note(v) }),
		decodeEach(dec, h.Claims, func(v claimed) { note(v) }),
		decodeEach(dec, h.Offers, func(v openOffer) { note(v) }),
		decodeEach(dec, h.Decided, func(Command) {}),
		decodeEach(dec, h.Cosigned, func(v CosignedLog) { note(v) }),
		decodeEach(dec, h.Erased, func(v Erasure) { note(v) }),
		decodeEach(dec, h.Regs, func(v regSnapshot) { note(v) }),
	)
	for range h.Streams {
		var stream streamHeader
		err = errors.Join(err, dec.Decode(&stream))
		note(stream)
		err = errors.Join(err, decodeEach(dec, stream.Entries, func(v announcedSnapshot) { note(v) }))
	}

	directorytest.Must(t, err)

	if len(set) < 100 {
		t.Fatalf("only %d members were looked at", len(set))
	}

	for name, isSet := range set {
		if !isSet && !neverWritten[name] {
			t.Errorf("%s is zero in every item of the sample", name)
		}
	}

	restore(t, s)
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
		var (
			item cbor.RawMessage
			err  error
		)
		if rest, err = cbor.UnmarshalFirst(rest, &item); err != nil {
			t.Fatal(err)
		}

		out.WriteString(describe(item))
	}

	golden(t, "snapshot-1.golden", out.String())
}

func TestASnapshotOfEveryItemIsInspected(t *testing.T) {
	var b bytes.Buffer
	directorytest.Must(t, everyItem(t).Snapshot().Write(&b))

	info, err := Inspect(&b)
	if err != nil || info.Registrations != 5 || len(info.Peers) != 2 {
		t.Errorf("got %+v, %v", info, err)
	}
}

// What is damaged is no state.
func TestADamagedRegistrationInASnapshot(t *testing.T) {
	e := &directory.Entry{Document: directory.LoadDocument(directory.KindAD,
		[]byte(`{"description":"`+strings.Repeat("An agent. ", 100)+`"}`))}
	e.Compact()

	resting := e.Document.StoredBytes()
	for name, w := range map[string]regSnapshot{
		"a document": {Kind: directory.KindAD, Document: resting[:len(resting)-3]},
		"a document with a projection": {Kind: directory.KindAD, Document: resting[:len(resting)-3],
			Packed: *Pack(directory.Document{}, &directory.Projection{})},
		"a projection": {Kind: directory.KindAD, Document: resting,
			Packed: Packed{directory.PackedVersion, []byte{200}}},
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
	e.Compact()

	if len(e.Document.StoredBytes()) == len(long.Bytes()) {
		t.Fatal("it does not rest")
	}

	sum := func(raw []byte) []byte {
		h := sha256.New()
		directorytest.Must(t, (&regSnapshot{Kind: directory.KindAD, Document: raw}).sum(h))

		return h.Sum(nil)
	}
	if !bytes.Equal(sum(long.Bytes()), sum(e.Document.StoredBytes())) {
		t.Error("it has two hashes")
	}
}

func TestALogEntryOfANewerRelease(t *testing.T) {
	for name, data := range map[string][]byte{
		"version":    must(Marshal(map[int]any{1: NewestLogVersion + 1, 2: 0, 3: []any{}})),
		"command":    must(Marshal(map[int]any{1: 1, 2: 0, 3: []any{map[int]any{1000: map[int]any{}}}})),
		"member":     must(Marshal(map[int]any{1: 1, 2: 0, 3: []any{map[int]any{8: map[int]any{1: 1, 2: 1}}}})),
		"not at all": []byte("x"),
	} {
		if _, err := DecodeBatch(data); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
