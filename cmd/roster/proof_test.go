package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// A signer is an origin that makes proof files.
type signer struct {
	domain spiffeid.TrustDomain
	ca     *trust.CA
	ring   *trust.Keyring
}

func newSigner(t testing.TB) *signer { return newSignerOf(t, alpha) }

func newSignerOf(t testing.TB, domain spiffeid.TrustDomain) *signer {
	t.Helper()
	now := time.Now()
	ca, err := trust.NewCA(domain, now)
	must(t, err)
	svid, err := ca.Issue("/roster/node/1", time.Hour, now)
	must(t, err)
	key, err := trust.OpenKey(t.TempDir())
	must(t, err)
	attestation, err := key.Attest(svid, now)
	must(t, err)
	s := &signer{domain, ca, trust.NewKeyring(domain, key, trust.NewBundles())}
	s.ring.SetOwn(&signed.KeyDocument{Issuer: domain, Epoch: 1, Seq: 1,
		Expires: now.Unix() + signed.KeyDocumentLifetime,
		Keys:    []signed.SigningKey{{Public: key.Public(), Node: svid.ID, Attestations: []string{attestation}}}})

	return s
}

// proof returns a proof file of a registration that is valid for an hour.
func (s *signer) proof(t testing.TB) []byte { return s.proofUntil(t, time.Now().Add(time.Hour), "") }

// proofUntil returns a proof file with a deadline, and a checkpoint if one is
// given.
func (s *signer) proofUntil(t testing.TB, deadline time.Time, checkpoint string) []byte {
	t.Helper()
	doc, err := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://weather.example"}`))
	must(t, err)
	change := &signed.Change{Issuer: s.domain, RID: directory.NewRID(1, [10]byte{}), Op: signed.OpPut, Epoch: 1,
		Revision: 7,
		IssuedAt: time.Now().Unix(), Since: time.Now().Unix(), Agent: "weather",
		Owner: directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada")), Document: doc,
		Salt: signed.Salt{1}}
	disclosures := change.Disclosures()
	statement, err := signed.Statement(signed.StatementFormat, change, disclosures)
	must(t, err)
	shown, m := signed.Disclosed(disclosures, directory.Grant{All: true})
	page := &signed.Page{Issuer: s.domain, Epoch: 1, Audience: directory.Mesh, From: 6, To: 7, At: 7,
		IssuedAt: time.Now().Unix(),
		Digests: []signed.Digest{{RID: change.RID, Revision: 7, Op: signed.OpPut, H: directory.HashOf(statement), M: m,
			Deadline: deadline.Unix(), Lifetime: 3600}}}
	_, keys, _ := s.ring.Keys(s.domain)
	bundle, err := s.ca.Bundle().Marshal()
	must(t, err)

	p := trust.Proof{Record: signed.Record{JWS: s.sign(t, signed.TypeRecord, statement), Disclosures: shown}.String(),
		Page: s.sign(t, signed.TypePage, page.Payload()), Keys: keys, Bundle: bundle}
	if checkpoint != "" {
		p.Checkpoint, p.Index = checkpoint, new(uint64)
	}

	return p.Bytes()
}

// staple returns a proof file as it travels with its agent.
func (s *signer) staple(t testing.TB, proof []byte) []byte {
	t.Helper()

	p, err := trust.ParseProof(proof)
	must(t, err)
	doc, _, _ := s.ring.Keys(s.domain)
	p.Keys, p.Bundle, p.Attestation = "", nil, doc.Keys[0].Attestations[0]

	return p.Bytes()
}

func (s *signer) sign(t testing.TB, typ string, payload []byte) string {
	t.Helper()
	jws, err := s.ring.Sign(typ, payload)
	must(t, err)

	return jws
}

// altered returns a proof file with another value for one of its members.
func altered(t testing.TB, proof []byte, member string, value func(string) string) []byte {
	t.Helper()

	var p map[string]any
	must(t, json.Unmarshal(proof, &p))
	p[member] = value(p[member].(string))
	b, err := json.Marshal(p)
	must(t, err)

	return b
}

// memberOf returns a member of a proof file that is text.
func memberOf(t testing.TB, proof []byte, name string) []byte {
	t.Helper()

	var p map[string]any
	must(t, json.Unmarshal(proof, &p))

	return []byte(p[name].(string))
}

// zeroed returns a record with a signature of zeros.
func zeroed(t testing.TB, record []byte) []byte {
	t.Helper()
	jws, disclosures, ok := strings.Cut(string(record), "~")

	dot := strings.LastIndexByte(jws, '.')
	if !ok || dot < 0 {
		t.Fatalf("not a record: %s", record)
	}

	return []byte(jws[:dot+1] + strings.Repeat("A", len(jws)-dot-1) + "~" + disclosures)
}
