package trust

import (
	"errors"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// addition returns what a later release adds to a signed structure.
func addition(t testing.TB, critical ...string) signed.Extension {
	t.Helper()

	e, err := signed.NewExtension([]byte(`{"colour" : "blue"}`), critical...)
	must(t, err)

	return e
}

// Requirement: FORM-001
func TestAProofWhoseEveryPartHasAnExtensionHolds(t *testing.T) {
	k := newProofKit(t)
	k.change.Extension = addition(t)
	k.page.Extension = addition(t)
	k.page.Digests[0].H = directory.HashOf(k.statement(t))

	a := attestation{node: k.o.svid.ID, public: k.o.key.Public(), time: time.Now().Unix(), extension: addition(t)}
	key := signed.SigningKey{
		Public: k.o.key.Public(), Node: k.o.svid.ID,
		Attestations: []string{signAttestation(t, k.o.svid, a.payload())},
	}
	k.o.issue(t, 2, key)
	k.o.doc.Extension = addition(t)
	k.o.doc.Formats = signed.Formats{signed.StructurePage: {1, 2}, "a later structure": {1, 2}}
	k.o.ring.SetOwn(k.o.doc)

	report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
	if err != nil {
		t.Fatalf("%v\n%v", err, report)
	}

	ring, _ := reader(t, k.o)

	doc, err := ring.Adopt(alpha, k.o.jws(t))
	if err != nil || doc.Extension != addition(t) || !doc.Formats.Equal(k.o.doc.Formats) {
		t.Errorf("got %+v, %v", doc, err)
	}

	page, err := k.o.ring.Sign(signed.TypePage, k.page.Payload())
	must(t, err)

	if _, _, err := ring.Verify(alpha, signed.TypePage, page); err != nil {
		t.Error(err)
	}
}

// Requirement: FORM-001
func TestAnAttestationWithAnUnknownCriticalNameIsUnsupported(t *testing.T) {
	o := newOrigin(t, alpha)
	_, bundles := reader(t, o)
	key := signed.SigningKey{Public: o.key.Public(), Node: o.svid.ID}

	verify := func(extension signed.Extension) error {
		a := attestation{node: o.svid.ID, public: o.key.Public(), time: time.Now().Unix(), extension: extension}
		_, err := verifyAttestation(signAttestation(t, o.svid, a.payload()), key, alpha, bundles, time.Now())

		return err
	}

	if err := verify(addition(t)); err != nil {
		t.Error(err)
	}

	if err := verify(addition(t, "colour")); !errors.Is(err, signed.ErrUnsupported) {
		t.Errorf("got %v, want it unsupported", err)
	}
}

// Requirement: FORM-001, MESH-022
func TestEvidenceOfStructuresThatHaveGrownConvicts(t *testing.T) {
	l := newLiar(t)
	l.page.Extension = addition(t)
	l.doc.Extension = addition(t)
	l.origin.ring.SetOwn(l.doc)

	other := *l.doc
	other.Extension = signed.Extension{}

	for name, evidence := range map[string][]byte{
		"E1": l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, later)}, []string{l.jws(t)}),
		"E3": l.against(t, nil, []string{l.jws(t), l.signKeys(t, &other)}),
	} {
		if found, err := l.ring.Judge(evidence, true); err != nil || found.Domain != alpha {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}

	// What a page says beside its digests contradicts nothing.
	bare := l.says(t, l.key, func(p *signed.Page) { p.Extension = signed.Extension{} })

	honest := l.against(t, []string{l.says(t, l.key, nil), bare}, []string{l.jws(t)})
	if found, err := l.ring.Judge(honest, true); err == nil {
		t.Errorf("pages that differ by ext alone convict: %+v", found)
	}
}

// Requirement: FORM-004
func TestEvidenceMayHaveMembersOfALaterRelease(t *testing.T) {
	l := newLiar(t)
	evidence := l.against(t, []string{l.says(t, l.key, nil), l.says(t, l.key, later)}, []string{l.jws(t)})
	grown := append([]byte(`{"later": {"x": [1]},`), evidence[1:]...)

	if found, err := l.ring.Judge(grown, true); err != nil || found.Domain != alpha {
		t.Errorf("got %+v, %v", found, err)
	}

	twice := append([]byte(`{"offence": "E3",`), evidence[1:]...)
	if _, err := l.ring.Judge(twice, true); !errors.Is(err, ErrFormat) {
		t.Errorf("a name twice: got %v", err)
	}
}
