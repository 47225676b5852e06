package attacks

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// A domain is one with an authority of its own, which anybody can make in any name.
type domain struct {
	name  spiffeid.TrustDomain
	ca    *trust.CA
	ring  *trust.Keyring
	other *trust.Key // of a node that left: in the key document, and nothing attests it
}

func newDomain(t testing.TB, name string) *domain {
	t.Helper()
	now := time.Now()
	td := spiffeid.RequireTrustDomainFromString(name)
	ca, err := trust.NewCA(td, now)
	must(t, err)
	svid, err := ca.Issue("/roster/node/1", time.Hour, now)
	must(t, err)
	key, err := trust.OpenKey(t.TempDir())
	must(t, err)
	other, err := trust.OpenKey(t.TempDir())
	must(t, err)
	attestation, err := key.Attest(svid, now)
	must(t, err)

	ring := trust.NewKeyring(td, key, trust.NewBundles())
	ring.SetOwn(&signed.KeyDocument{
		Issuer: td, Epoch: 1, Seq: 1, Expires: now.Unix() + signed.KeyDocumentLifetime,
		Keys: []signed.SigningKey{
			{Public: key.Public(), Node: svid.ID, Attestations: []string{attestation}},
			{Public: other.Public(), Node: svid.ID},
		},
	})

	return &domain{td, ca, ring, other}
}

// proof makes a proof file of an agent that is the domain's for an hour.
func (d *domain) proof(t testing.TB) *trust.Proof {
	t.Helper()
	now := time.Now().Unix()
	document, err := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://payments.example"}`))
	must(t, err)
	change := &signed.Change{
		Issuer: d.name, RID: directory.NewRID(1, [10]byte{}), Op: signed.OpPut, Epoch: 1, Revision: 7,
		IssuedAt: now, Since: now, Agent: "payments", Document: document, Salt: signed.Salt{1},
		Owner: directory.IdentityOf(spiffeid.RequireFromPath(d.name, "/agent/ada")),
	}
	disclosures := change.Disclosures()
	statement, err := signed.Statement(signed.StatementFormat, change, disclosures)
	must(t, err)
	shown, m := signed.Disclosed(disclosures, directory.Grant{All: true})
	page := &signed.Page{
		Issuer: d.name, Epoch: 1, Audience: directory.Mesh, From: 6, To: 7, At: 7, IssuedAt: now,
		Digests: []signed.Digest{{
			RID: change.RID, Revision: 7, Op: signed.OpPut, H: directory.HashOf(statement), M: m,
			Deadline: now + 3600, Lifetime: 3600,
		}},
	}

	_, keys, _ := d.ring.Keys(d.name)
	bundle, err := d.ca.Bundle().Marshal()
	must(t, err)

	return &trust.Proof{
		Record: signed.Record{JWS: d.sign(t, signed.TypeRecord, statement), Disclosures: shown}.String(),
		Page:   d.sign(t, signed.TypePage, page.Payload()),
		Keys:   keys,
		Bundle: bundle,
	}
}

func (d *domain) sign(t testing.TB, typ string, payload []byte) string {
	t.Helper()
	jws, err := d.ring.Sign(typ, payload)
	must(t, err)

	return jws
}

// A verdict is the output of roster verify -o json.
type verdict struct {
	Authentic bool   `json:"authentic"`
	Anchor    string `json:"anchor"`
}

func verify(t *testing.T, args ...string) (code int, v verdict, text string) {
	t.Helper()
	code, out, errs := runProgram(t, append([]string{"verify", "-o", "json"}, args...)...)
	must(t, json.Unmarshal([]byte(out), &v))

	return code, v, out + errs
}

// Finding 16: a proof that was made under anybody's own authority was "authentic",
// exit 0. The attacker has a CA of their own in the victim's name, and nothing else.
//
// Requirement: SEC-017
func TestAProofUnderOnesOwnAuthorityIsNotAuthentic(t *testing.T) {
	dir := t.TempDir()
	victim, attacker := newDomain(t, "bank.test"), newDomain(t, "bank.test")
	genuine, forged := victim.proof(t), attacker.proof(t)
	genuineFile := writeFile(t, dir, "genuine.json", genuine.Bytes())
	forgedFile := writeFile(t, dir, "forged.json", forged.Bytes())
	forgedRecord := writeFile(t, dir, "forged.sdjwt", []byte(forged.Record))
	pem, _ := victim.ca.PEM()
	bundle := writeFile(t, dir, "bank.pem", pem)
	keys := writeFile(t, dir, "bank.keys", []byte(genuine.Keys))
	forgedKeys := writeFile(t, dir, "forged.keys", []byte(forged.Keys))

	for _, file := range []string{forgedFile, forgedRecord} {
		code, v, text := verify(t, file)
		if code != 12 || v.Authentic || v.Anchor != "none" {
			t.Errorf("%s without an anchor: exit code %d: %s", file, code, text)
		}

		if !strings.Contains(text, "the file's own bundle shows only that the file agrees with itself") {
			t.Errorf("%s: the text does not say that the file's own bundle proves nothing: %s", file, text)
		}

		for _, anchor := range [][]string{
			{"--bundle", bundle},
			{"--keys", keys},
			{"--bundle", bundle, "--keys", keys},
			{"--bundle", bundle, "--keys", forgedKeys},
		} {
			if code, v, text := verify(t, append(anchor, file)...); code != 12 || v.Authentic {
				t.Errorf("%s by %q: exit code %d: %s", file, anchor, code, text)
			}
		}
	}

	// The genuine one holds by either anchor, and by none without.
	for want, anchor := range map[string][]string{"bundle": {"--bundle", bundle}, "keys": {"--keys", keys}} {
		if code, v, text := verify(t, append(anchor, genuineFile)...); code != 0 || !v.Authentic || v.Anchor != want {
			t.Errorf("the genuine file by %s: exit code %d: %s", want, code, text)
		}
	}

	if code, v, text := verify(t, genuineFile); code != 12 || v.Authentic || v.Anchor != "none" {
		t.Errorf("the genuine file without an anchor: exit code %d: %s", code, text)
	}
}

// Finding 16: a bare record whose signature was zeroed ended with exit 0, with a bundle
// too.
//
// Requirement: SEC-017
func TestARecordWithAnyOtherSignatureIsRefused(t *testing.T) {
	dir := t.TempDir()
	victim := newDomain(t, "bank.test")
	proof := victim.proof(t)
	pem, _ := victim.ca.PEM()
	bundle := writeFile(t, dir, "bank.pem", pem)
	keys := writeFile(t, dir, "bank.keys", []byte(proof.Keys))

	genuine := writeFile(t, dir, "genuine.sdjwt", []byte(proof.Record))
	if code, v, text := verify(t, genuine, "--bundle", bundle, "--keys", keys); code != 0 || !v.Authentic {
		t.Fatalf("the genuine record: exit code %d: %s", code, text)
	}

	jws, disclosures, _ := strings.Cut(proof.Record, "~")
	head := jws[:strings.LastIndexByte(jws, '.')+1]
	signature, err := directory.B64.DecodeString(jws[len(head):])
	must(t, err)

	mutants := map[string][]byte{"zeroed": make([]byte, len(signature))}
	for _, i := range []int{0, len(signature) / 2, len(signature) - 1} {
		mutant := slices.Clone(signature)
		mutant[i] ^= 1
		mutants["byte "+strconv.Itoa(i)] = mutant
	}

	for name, mutant := range mutants {
		file := writeFile(t, dir, "mutant.sdjwt", []byte(head+directory.B64.EncodeToString(mutant)+"~"+disclosures))
		for _, anchor := range [][]string{{}, {"--bundle", bundle}, {"--keys", keys},
			{"--bundle", bundle, "--keys", keys}} {
			if code, v, text := verify(t, append(anchor, file)...); code == 0 || v.Authentic {
				t.Errorf("%s by %q: exit code %d: %s", name, anchor, code, text)
			}
		}
	}
}

// A member's old key that the domain still lists, and that no SVID vouches for, signs
// nothing that a verifier believes.
//
// Requirement: SEC-017
func TestARecordByAnUnattestedKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	victim := newDomain(t, "bank.test")
	proof := victim.proof(t)
	jws, disclosures, _ := strings.Cut(proof.Record, "~")
	payload, err := directory.B64.DecodeString(strings.Split(jws, ".")[1])
	must(t, err)
	victim.ring.SetKey(victim.other)
	proof.Record = victim.sign(t, signed.TypeRecord, payload) + "~" + disclosures

	pem, _ := victim.ca.PEM()
	bundle := writeFile(t, dir, "bank.pem", pem)

	keys := writeFile(t, dir, "bank.keys", []byte(proof.Keys))
	for _, args := range [][]string{
		{writeFile(t, dir, "stolen.json", proof.Bytes()), "--bundle", bundle},
		{writeFile(t, dir, "stolen.sdjwt", []byte(proof.Record)), "--bundle", bundle, "--keys", keys},
	} {
		if code, v, text := verify(t, args...); code != 12 || v.Authentic {
			t.Errorf("%q: exit code %d: %s", args, code, text)
		}
	}
}
