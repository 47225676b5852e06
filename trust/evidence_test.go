package trust

import (
	"crypto/ed25519"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// A liar is an origin with a reader that believes it, and what there is to say.
type liar struct {
	*origin
	ring  *Keyring
	trust *spiffebundle.Bundle
	page  signed.Page
}

func newLiar(t testing.TB) *liar {
	o := newOrigin(t, alpha)
	ring, _ := reader(t, o)
	now := time.Now().Unix()
	rid := func(b byte) directory.RID { return directory.NewRID(now*1000, [10]byte{b}) }
	l := &liar{o, ring, o.ca.Bundle(), signed.Page{
		Issuer: alpha, Epoch: 1, Audience: directory.Mesh, To: 9, At: 9, IssuedAt: now,
		Digests: []signed.Digest{
			{RID: rid(1), Revision: 4, Op: signed.OpPut, H: directory.Hash{1}, M: directory.Hash{2},
				Deadline: now + 60, Lifetime: 60},
			{RID: rid(2), Revision: 6, Op: signed.OpRenew, H: directory.Hash{3}, M: directory.Hash{4},
				Deadline: now + 90, Lifetime: 90},
			{RID: rid(3), Revision: 7, Op: signed.OpEnd, H: directory.Hash{5}},
			{RID: rid(4), Revision: 9, Op: signed.OpDrop},
		}}}
	_, err := ring.Adopt(alpha, o.jws(t))
	must(t, err)

	return l
}

// says signs the page as it is after change.
func (l *liar) says(t testing.TB, by *Key, change func(*signed.Page)) string {
	t.Helper()
	p := l.page

	p.Digests = append([]signed.Digest(nil), p.Digests...)
	if change != nil {
		change(&p)
	}

	jws, err := by.sign(signed.TypePage, p.Payload())
	must(t, err)

	return jws
}

func (l *liar) against(t testing.TB, pages, keys []string) []byte {
	t.Helper()
	evidence, err := l.ring.Accuse(alpha, pages, keys)
	must(t, err)

	return evidence
}

// rooted is a checkpoint of the ledger.
func (l *liar) rooted(root byte, size uint64) string {
	c := checkpoint.Checkpoint{Origin: l.doc.LogOrigin(), Size: size, Root: directory.Hash{root}}
	return checkpoint.Sign(c, l.key.private)
}

// Two checkpoints convict only if keys of the domain signed them, for one size of its ledger.
//
// Requirement: LOG-017, LOG-018
func TestCheckpointsOfAnHonestLedgerDoNotConvict(t *testing.T) {
	l := newLiar(t)
	one := l.rooted(1, 7)
	other := checkpoint.Checkpoint{Origin: "alpha.test/roster/2", Size: 7, Root: directory.Hash{2}}
	_, stranger, err := ed25519.GenerateKey(nil)
	must(t, err)

	byStranger := other
	byStranger.Origin = l.doc.LogOrigin()
	forged, err := checkpoint.Parse(l.rooted(1, 7))
	must(t, err)

	changed := strings.Replace(forged.String(), forged.Text, byStranger.Text(), 1)

	for name, row := range map[string]struct {
		checkpoint string
		want       error
	}{
		"another size":                {l.rooted(2, 8), ErrFormat},
		"the same":                    {one, ErrFormat},
		"the ledger of another epoch": {checkpoint.Sign(other, l.key.private), ErrKey},
		"a stranger's":                {checkpoint.Sign(byStranger, stranger), ErrKey},
		"a changed one":               {changed, signed.ErrSignature},
		"none":                        {"hello\n", ErrFormat},
	} {
		evidence := l.against(t, []string{one, row.checkpoint}, []string{l.jws(t)})
		if _, err := l.ring.Judge(evidence, true); !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
	}
}

func later(p *signed.Page) { p.Digests[1].Deadline++ }

// All kinds of evidence convict: here, and of a stranger who has nothing but the
// file and the domain's bundle.
//
// Requirement: MESH-022
func TestEvidenceConvicts(t *testing.T) {
	l := newLiar(t)
	other := *l.doc

	other.Mesh = nil
	for name, evidence := range map[string][]byte{
		"E1, another deadline": l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, later)},
			[]string{l.jws(t)}),
		"E1, another operation": l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, func(p *signed.Page) {
			p.From, p.Digests = 8, []signed.Digest{{RID: p.Digests[3].RID, Revision: 9, Op: signed.OpEnd,
				H: directory.Hash{9}}}
		})}, []string{l.jws(t)}),
		"E2": l.against(t, []string{l.rooted(1, 7), l.rooted(2, 7)}, []string{l.jws(t)}),
		"E3": l.against(t, nil, []string{l.jws(t), l.signKeys(t, &other)}),
	} {
		found, err := l.ring.Judge(evidence, true)
		if err != nil || found.Domain != alpha || !strings.HasPrefix(found.ID, name[:2]) || found.What == "" {
			t.Errorf("%s: %+v %v", name, found, err)
		}

		for _, opts := range []VerifyOptions{{Bundle: l.trust}, {Keys: l.jws(t)}} {
			report, err := Verify(evidence, opts)
			if ExitCode(err) != 11 || !errors.Is(err, ErrEquivocation) || report.Subject.Domain != alpha.Name() {
				t.Errorf("%s: exit code %d: %v\n%v", name, ExitCode(err), err, report)
			}

			if last := report.Steps[len(report.Steps)-1]; !last.OK || report.Authentic ||
				!strings.HasPrefix(report.Verdict, "evidence valid: alpha.test signed two ") {
				t.Errorf("%s: %q, last step %+v", name, report.Verdict, last)
			}
		}

		if report, err := Verify(evidence, VerifyOptions{}); !errors.Is(err, ErrNoAnchor) || ExitCode(err) != 12 {
			t.Errorf("%s without an anchor: %v\n%v", name, err, report)
		}

		if _, err := Verify(evidence, VerifyOptions{Keys: mutateSignature(l.jws(t))}); ExitCode(err) != 10 {
			t.Errorf("%s by pinned keys that were changed: %v", name, err)
		}

		if _, err := Verify(evidence, VerifyOptions{Keys: newOrigin(t, alpha).jws(t)}); ExitCode(err) != 12 {
			t.Errorf("%s by other pinned keys: %v", name, err)
		}

		if _, err := Verify(evidence, VerifyOptions{Bundle: newOrigin(t, beta).ca.Bundle()}); ExitCode(err) != 12 {
			t.Errorf("%s by another's bundle: %v", name, err)
		}
	}
}

// A domain that signs with another key before its lie is found is convicted by the
// document that listed the first.
//
// Requirement: MESH-022
func TestARotatedKeyConvicts(t *testing.T) {
	l := newLiar(t)
	first, before := *l.key, l.jws(t)
	said := l.says(t, &first, nil)
	second, err := OpenKey(t.TempDir())
	must(t, err)
	l.key = second
	l.origin.ring.SetKey(second)
	l.issue(t, 2, l.signingKey(t))
	_, err = l.ring.Adopt(alpha, l.jws(t))
	must(t, err)

	for name, pages := range map[string][]string{
		"by the two":      {said, l.says(t, second, later)},
		"both by the old": {said, l.says(t, &first, later)},
		"both by the new": {l.says(t, second, nil), l.says(t, second, later)},
	} {
		evidence := l.against(t, pages, []string{l.jws(t), before})
		if _, err := l.ring.Judge(evidence, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if _, err := Verify(evidence, VerifyOptions{Bundle: l.trust}); ExitCode(err) != 11 {
			t.Errorf("%s: offline: %v", name, err)
		}
	}

	evidence := l.against(t, []string{said, l.says(t, second, later)}, []string{l.jws(t), before})
	l.doc.Seq, l.doc.Revoked = 3, []string{first.id}
	l.origin.ring.SetOwn(l.doc)
	_, err = l.ring.Adopt(alpha, l.jws(t))
	must(t, err)

	if _, err := l.ring.Judge(evidence, true); !errors.Is(err, signed.ErrKeyRevoked) {
		t.Errorf("once the first is revoked: %v", err)
	}

	// The document that revokes it says so to strangers too, beside one that doesn't.
	evidence = l.against(t, []string{said, l.says(t, second, later)}, []string{l.jws(t), before})

	stranger, _ := reader(t, l.origin)
	if _, err := stranger.Judge(evidence, true); !errors.Is(err, signed.ErrKeyRevoked) {
		t.Errorf("a stranger, by the document that revokes it: %v", err)
	}

	if _, err := Verify(evidence, VerifyOptions{Bundle: l.trust}); ExitCode(err) != 12 {
		t.Errorf("offline, by the document that revokes it: %v", err)
	}
}

// However many documents there are, a file has the newest that list the pages' keys.
func TestEvidenceHasTheDocumentsThatItNeeds(t *testing.T) {
	l := newLiar(t)

	docs := []string{l.jws(t)}
	for seq := range uint64(3) {
		l.issue(t, seq+2, l.signingKey(t))
		docs = append([]string{l.jws(t)}, docs...)
	}

	pages := []string{l.says(t, l.key, nil), l.says(t, l.key, later)}
	evidence := l.against(t, pages, docs)
	e, err := parseEvidence(evidence)
	must(t, err)

	if !slices.Equal(e.Keys, docs[:1]) {
		t.Errorf("it has %d documents", len(e.Keys))
	}
}

// The same contradiction has one name, whoever tells of it and by which pages.
func TestAContradictionHasOneName(t *testing.T) {
	l := newLiar(t)
	a, b := l.says(t, l.key, nil), l.says(t, l.key, later)
	shorter := l.says(t, l.key, func(p *signed.Page) { later(p); p.From, p.Digests = 5, p.Digests[1:] })

	var first string
	for _, pages := range [][]string{{a, b}, {b, a}, {shorter, a}} {
		found, err := l.ring.Judge(l.against(t, pages, []string{l.jws(t)}), true)
		must(t, err)

		if first == "" {
			first = found.ID
		}

		if found.ID != first {
			t.Errorf("%s and %s", found.ID, first)
		}
	}
}

// What honest domains do, and what strangers make of it, convicts nobody.
//
// Requirement: MESH-022
func TestNothingElseConvicts(t *testing.T) {
	l := newLiar(t)
	second, err := OpenKey(t.TempDir())
	must(t, err)
	attestation, err := second.Attest(l.svid, time.Now())
	must(t, err)
	l.issue(t, 2, l.signingKey(t), signed.SigningKey{Public: second.Public(), Node: l.svid.ID,
		Attestations: []string{attestation}})
	keys := []string{l.jws(t)}
	forger := newOrigin(t, alpha) // of another CA

	said := l.says(t, l.key, nil)
	for name, pages := range map[string][]string{
		"the same page twice":         {said, said},
		"signed again by another key": {said, l.says(t, second, nil)},
		"signed again later":          {said, l.says(t, l.key, func(p *signed.Page) { p.IssuedAt += 5 })},
		"another range": {said, l.says(t, l.key, func(p *signed.Page) {
			p.From, p.At, p.Digests = 5, 20, p.Digests[1:]
		})},
		"less of the same range": {said, l.says(t, l.key, func(p *signed.Page) { p.Digests = p.Digests[2:] })},
		"a later change": {said, l.says(t, l.key, func(p *signed.Page) {
			p.Digests = []signed.Digest{p.Digests[0], p.Digests[2], p.Digests[1]}
			p.Digests[2].Revision, p.Digests[2].Deadline = 8, p.Digests[2].Deadline+9
		})},
		"another registration": {said, l.says(t, l.key, func(p *signed.Page) {
			p.Digests[1].RID = p.Digests[0].RID
			p.Digests = p.Digests[1:]
		})},
		"another epoch": {said, l.says(t, l.key, func(p *signed.Page) { p.Epoch++; later(p) })},
		"another stream": {said, l.says(t, l.key, func(p *signed.Page) {
			p.Audience = directory.Only(beta)
			later(p)
		})},
		"another's key":   {said, l.says(t, forger.key, later)},
		"another's names": {said, l.says(t, l.key, func(p *signed.Page) { p.Issuer = beta; later(p) })},
		"all in another's name": {
			l.says(t, l.key, func(p *signed.Page) { p.Issuer = beta }),
			l.says(t, l.key, func(p *signed.Page) { p.Issuer = beta; later(p) }),
		},
	} {
		convictsNobody(t, l, name, l.against(t, pages, keys))
	}

	next := *l.doc
	next.Seq++
	next.Expires++
	restored, named := *l.doc, *l.doc
	restored.Epoch++
	named.Issuer, named.Keys = beta, nil
	again, err := second.sign(signed.TypeKeys, l.doc.Payload())
	must(t, err)
	fork := *l.doc
	fork.Mesh = nil
	forged, err := forger.key.sign(signed.TypeKeys, fork.Payload())
	must(t, err)

	for name, docs := range map[string][]string{
		"the same document twice":         {keys[0], keys[0]},
		"a document signed again":         {keys[0], again},
		"the next document":               {keys[0], l.signKeys(t, &next)},
		"a document by a key it lacks":    {keys[0], forged},
		"the same number after a restore": {keys[0], l.signKeys(t, &restored)},
		"one in another's name":           {keys[0], l.signKeys(t, &named)},
		"another's document":              {keys[0], newOrigin(t, beta).jws(t)},
		"a document of the forger's own":  {keys[0], forger.jws(t)},
		"a forger's two":                  {forger.jws(t), forger.signKeys(t, &fork)},
		"a document and nothing else":     {keys[0], ""},
		"a document and a page":           {keys[0], said},
	} {
		convictsNobody(t, l, name, l.against(t, nil, docs))
	}
}

// A file holds what its offence needs and nothing beside it: the keys that are looked up
// among the revoked ones are those of its last two parts.
//
// Requirement: MESH-022
func TestEvidenceHasNoFurtherParts(t *testing.T) {
	l := newLiar(t)
	fork := *l.doc
	fork.Mesh = nil
	a, b := l.says(t, l.key, nil), l.says(t, l.key, later)

	one, two := l.jws(t), l.signKeys(t, &fork)
	for name, e := range map[string]Evidence{
		"one page": {Offence: TwoDigests, Pages: []string{a}, Keys: []string{one}},
		"pages and checkpoints": {Offence: TwoDigests, Pages: []string{a, b}, Keys: []string{one},
			Checkpoints: []string{l.rooted(1, 7), l.rooted(2, 7)}},
		"three pages":          {Offence: TwoDigests, Pages: []string{a, b, a}, Keys: []string{one}},
		"no key document":      {Offence: TwoDigests, Pages: []string{a, b}},
		"three for two pages":  {Offence: TwoDigests, Pages: []string{a, b}, Keys: []string{one, one, one}},
		"one document":         {Offence: TwoKeyDocuments, Keys: []string{one}},
		"three documents":      {Offence: TwoKeyDocuments, Keys: []string{one, two, one}},
		"documents and a page": {Offence: TwoKeyDocuments, Pages: []string{a}, Keys: []string{one, two}},
		"another offence":      {Offence: "E2", Keys: []string{one, two}},
		"pages of another":     {Offence: "E2", Pages: []string{a, b}, Keys: []string{one}},
	} {
		var err error
		e.Bundle, err = l.ring.bundles.JWKS(alpha)
		must(t, err)

		if _, err := l.ring.Judge(e.Bytes(), true); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}

	large := append(l.against(t, nil, []string{one, two}), strings.Repeat(" ", MaxProof)...)
	if _, err := l.ring.Judge(large, true); !errors.Is(err, ErrFormat) {
		t.Errorf("over the bound: %v", err)
	}
}

// No domain convicts itself: its own word against itself is for its operators.
func TestNoDomainConvictsItself(t *testing.T) {
	l := newLiar(t)
	own := NewKeyring(alpha, l.key, l.ring.bundles)

	evidence := l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, later)}, []string{l.jws(t)})
	if found, err := own.Judge(evidence, true); !errors.Is(err, ErrKey) {
		t.Errorf("it does: %+v %v", found, err)
	}
}

func convictsNobody(t testing.TB, l *liar, name string, evidence []byte) {
	t.Helper()

	if found, err := l.ring.Judge(evidence, true); err == nil {
		t.Errorf("%s: it convicts: %+v", name, found)
	}

	if _, err := Verify(evidence, VerifyOptions{Bundle: l.trust}); ExitCode(err) == 11 {
		t.Errorf("%s: offline it convicts: %v", name, err)
	}
}

// A thief's word is no evidence once the key is revoked, nor is what belongs to an
// epoch that is over: that is what an operator's release waits for.
//
// Requirement: MESH-022, TRUST-010
func TestARevokedKeyConvictsNoMore(t *testing.T) {
	l := newLiar(t)
	stolen := *l.key
	second, err := OpenKey(t.TempDir())
	must(t, err)
	attestation, err := second.Attest(l.svid, time.Now())
	must(t, err)

	evidence := l.against(t, []string{l.says(t, l.key, nil), l.says(t, &stolen, later)}, []string{l.jws(t)})
	if _, err := l.ring.Judge(evidence, true); err != nil {
		t.Fatal(err)
	}

	next := signed.KeyDocument{Issuer: alpha, Epoch: 1, Seq: 9, Expires: time.Now().Unix() + 3600,
		Revoked: []string{stolen.id},
		Keys:    []signed.SigningKey{{Public: second.Public(), Node: l.svid.ID, Attestations: []string{attestation}}}}
	jws, err := second.sign(signed.TypeKeys, next.Payload())
	must(t, err)
	_, err = l.ring.Adopt(alpha, jws)
	must(t, err)

	if _, err := l.ring.Judge(evidence, true); !errors.Is(err, signed.ErrKeyRevoked) {
		t.Errorf("by a revoked key: %v", err)
	}

	fresh := newLiar(t)
	old := fresh.against(t, []string{fresh.says(t, fresh.key, nil), fresh.says(t, fresh.key, later)},
		[]string{fresh.jws(t)})
	fresh.doc.Epoch = 2
	fresh.origin.ring.SetOwn(fresh.doc)
	_, err = fresh.ring.Adopt(alpha, fresh.jws(t))
	must(t, err)

	if _, err := fresh.ring.Judge(old, true); !errors.Is(err, ErrKeysOld) {
		t.Errorf("of an epoch that is over: %v", err)
	}
}

// No bit of what the domain signed can be other than it is: a file that was changed
// in it convicts nobody.
//
// Requirement: MESH-022
func TestMutatedEvidence(t *testing.T) {
	l := newLiar(t)
	evidence := l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, later)}, []string{l.jws(t)})
	want, err := parseEvidence(evidence)
	must(t, err)

	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		mutant := append([]byte(nil), evidence...)
		at := rng.IntN(len(mutant))

		mutant[at] ^= 1 << rng.IntN(8)
		if _, err := l.ring.Judge(mutant, true); err != nil {
			continue
		}

		got, err := parseEvidence(mutant)
		must(t, err)

		if got.Offence != want.Offence || !slices.Equal(got.Pages, want.Pages) || !slices.Equal(got.Keys, want.Keys) {
			t.Fatalf("mutant %d at %d convicts", i, at)
		}
	}
}

// Whoever finds the private key of an SVID that ended long ago convicts nobody by it.
//
// Requirement: MESH-022
func TestAnSVIDThatEndedConvictsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiar(t)
		old, then, before := l.svid, time.Now(), l.jws(t)
		aged := l.signingKey(t)
		time.Sleep(10 * 24 * time.Hour)
		svid, err := l.ca.Issue("/roster/node/1", time.Hour, time.Now())
		must(t, err)
		l.svid = svid
		l.issue(t, 2, l.signingKey(t))
		_, err = l.ring.Adopt(alpha, l.jws(t))
		must(t, err)

		k, err := OpenKey(t.TempDir())
		must(t, err)
		att, err := k.Attest(old, then)
		must(t, err)
		doc := &signed.KeyDocument{Issuer: alpha, Epoch: 1, Seq: 9,
			Keys:    []signed.SigningKey{{Public: k.Public(), Node: old.ID, Attestations: []string{att}}},
			Expires: then.Unix() + signed.KeyDocumentLifetime, Mesh: []spiffeid.TrustDomain{}}
		jws, err := k.sign(signed.TypeKeys, doc.Payload())
		must(t, err)
		forged := l.against(t, []string{l.says(t, k, nil), l.says(t, k, later)}, []string{jws})

		stranger, _ := reader(t, l.origin) // who has no key document of alpha's yet
		for _, ring := range []*Keyring{l.ring, stranger} {
			if _, err := ring.Judge(forged, true); !errors.Is(err, ErrKey) {
				t.Errorf("an SVID of ten days ago convicts: %v", err)
			}
		}

		pages := []string{l.says(t, l.key, nil), l.says(t, l.key, later)}
		// A key that is listed still convicts by the document of then; of whom has none of
		// alpha's, by one that has a late attestation, wherever that stands.
		if _, err := l.ring.Judge(l.against(t, pages, []string{before}), true); err != nil {
			t.Errorf("by a key that is listed: %v", err)
		}

		if _, err := stranger.Judge(l.against(t, pages, []string{before}), true); !errors.Is(err, ErrKey) {
			t.Errorf("an SVID of ten days ago convicts: %v", err)
		}

		both := l.signingKey(t)
		both.Attestations = append(both.Attestations, aged.Attestations...)
		l.issue(t, 3, both)

		if _, err := stranger.Judge(l.against(t, pages, []string{l.jws(t)}), true); err != nil {
			t.Errorf("by an attestation that an older one follows: %v", err)
		}

		lie := l.against(t, pages, []string{l.jws(t)})
		for _, after := range []time.Duration{0, 6 * 24 * time.Hour} {
			time.Sleep(after)

			if _, err := stranger.Judge(lie, true); err != nil {
				t.Errorf("after %v: %v", after, err)
			}
		}

		time.Sleep(30 * 24 * time.Hour)

		if _, err := stranger.Judge(lie, false); err != nil {
			t.Errorf("what convicted once is forgotten: %v", err)
		}
	})
}
