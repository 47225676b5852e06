//go:build !compatnext

package trust

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// specVectors is where the vectors for other implementations are.
const specVectors = "../docs/spec/vectors"

var updateVectors = flag.Bool("update", false, "write docs/spec/vectors anew")

// The vectors in the repository are what the writers of this release make.
//
// Requirement: FORM-010
func TestSpecVectorsAreWhatIsWritten(t *testing.T) {
	for name, made := range newVectorMaker(t).files() {
		text, plain := made.([]byte)
		if !plain {
			var err error
			text, err = json.Marshal(made, jsontext.Multiline(true), json.Deterministic(true))
			must(t, err)
			text = append(text, '\n')
		}

		file := filepath.Join(specVectors, name)

		if *updateVectors {
			must(t, os.WriteFile(file, text, 0o644))
			continue
		}

		if held, err := os.ReadFile(file); err != nil || string(held) != string(text) {
			t.Errorf("%s differs from what is made (%v): run go test ./trust -run SpecVectors -update", file, err)
		}
	}
}

// A vectorReader is another domain's reader at the time of the vectors.
type vectorReader struct {
	keys    specKeys
	origin  spiffeid.TrustDomain
	bundle  *spiffebundle.Bundle
	bundles *Bundles
}

func readSpec(t testing.TB, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(specVectors, name))
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

func newVectorReader(t testing.TB) *vectorReader {
	t.Helper()
	r := &vectorReader{bundles: NewBundles()}
	readSpec(t, "keys.json", &r.keys)
	r.origin = spiffeid.RequireTrustDomainFromString(r.keys.Origin)

	var authorities []*x509.Certificate
	for _, text := range r.keys.Authorities {
		der, err := base64.StdEncoding.DecodeString(text)
		must(t, err)
		authority, err := x509.ParseCertificate(der)
		must(t, err)
		authorities = append(authorities, authority)
	}

	r.bundle = spiffebundle.FromX509Authorities(r.origin, authorities)
	must(t, r.bundles.SetX509(r.origin, authorities))

	return r
}

// ring is a keyring that has adopted nothing.
func (r *vectorReader) ring(t testing.TB) *Keyring {
	t.Helper()
	return NewKeyring(spiffeid.RequireTrustDomainFromString("reader.test"), newKey(vectorKey("reader")), r.bundles)
}

// Each vector gets its verdict by this release's readers, in virtual time. Pages and
// heads also pass the gate itself, in package federation.
//
// Requirement: FORM-001, FORM-010, LOG-027
func TestSpecVectorsHaveTheirVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newVectorReader(t)
		time.Sleep(time.Until(time.Unix(r.keys.At, 0)))
		ring := r.ring(t)
		_, err := ring.Adopt(r.origin, r.keys.KeyDocument)
		must(t, err)

		judges := map[string]func(specVector, signed.Dialect) string{
			"page.json": func(vector specVector, d signed.Dialect) string {
				return r.signed(ring, signed.TypePage, vector.Text, func(payload []byte) error {
					_, err := d.ParsePage(payload)
					return err
				})
			},
			"head.json": func(vector specVector, d signed.Dialect) string {
				return r.signed(ring, signed.TypeHead, vector.Text, func(payload []byte) error {
					_, err := d.ParseHead(payload)
					return err
				})
			},
			"record.json": func(vector specVector, d signed.Dialect) string { return r.record(t, ring, vector, d) },
			"key-document.json": func(vector specVector, _ signed.Dialect) string {
				_, err := r.ring(t).Adopt(r.origin, vector.Text)
				return verdictOf(err)
			},
			"attestation.json": func(vector specVector, _ signed.Dialect) string {
				return r.attestation(ring, vector.Text)
			},
			"proof.json": func(vector specVector, _ signed.Dialect) string {
				_, err := Verify([]byte(vector.Text), VerifyOptions{Bundle: r.bundle, At: time.Unix(r.keys.At, 0),
					Policy: policyOfAll(t, vector.Witnesses)})

				return proofVerdict(err)
			},
			"staple.json": func(vector specVector, _ signed.Dialect) string {
				_, err := Verify([]byte(vector.Text), VerifyOptions{Bundle: r.bundle, Staple: true,
					At: time.Unix(cmp.Or(vector.At, r.keys.At), 0)})

				return proofVerdict(err)
			},
			"evidence.json": func(vector specVector, _ signed.Dialect) string {
				_, err := Verify([]byte(vector.Text), VerifyOptions{Bundle: r.bundle, At: time.Unix(r.keys.At, 0)})
				return proofVerdict(err)
			},
		}
		for name, judge := range judges {
			var file specFile
			readSpec(t, name, &file)

			seen := map[string]bool{}
			for _, vector := range file.Vectors {
				dialect := signed.OwnDialect()

				dialect.Critical = append(dialect.Critical, vector.Critical...)
				if got := judge(vector, dialect); got != vector.Verdict {
					t.Errorf("%s: %s: got %s, want %s\n%s", name, vector.Name, got, vector.Verdict, vector.Payload)
				}

				if seen[vector.Name] {
					t.Errorf("%s: two vectors are called %q", name, vector.Name)
				}

				seen[vector.Name] = true
			}

			if len(file.Vectors) < 20 {
				t.Errorf("%s has %d vectors", name, len(file.Vectors))
			}
		}
	})
}

// signed is the gate's order (rule G6): form, header, payload, key, signature, and
// then what the reader doesn't understand.
func (r *vectorReader) signed(ring *Keyring, typ, text string, parse func([]byte) error) string {
	jws, _, err := compact.ParseOwn(text, typ, compact.MaxSize)
	if err != nil {
		return verdictOf(err)
	}

	parsed := parse(jws.Payload)
	if parsed != nil && !errors.Is(parsed, signed.ErrUnsupported) {
		return "json"
	}

	if _, _, err := ring.Verify(r.origin, typ, text); err != nil {
		return verdictOf(err)
	}

	return verdictOf(parsed)
}

func (r *vectorReader) record(t *testing.T, ring *Keyring, vector specVector, d signed.Dialect) string {
	t.Helper()

	record, err := signed.ParseRecord(vector.Text)
	if err != nil {
		return "format"
	}

	verdict := r.signed(ring, signed.TypeRecord, record.JWS, func(payload []byte) error {
		_, err := d.ParseStatement(payload)
		return err
	})
	if verdict != "ok" {
		return verdict
	}

	h, m := recordName(vector.Text)
	if h != vector.H || m != vector.M {
		t.Errorf("record.json: %s: its name is (%s, %s)", vector.Name, h, m)
	}

	jws, _, err := compact.ParseOwn(record.JWS, signed.TypeRecord, signed.MaxRecord)
	must(t, err)

	if _, err := d.OpenNamed(jws.Payload, record.Disclosures, directory.Hash{}, directory.Hash{}); err != nil {
		return "record"
	}

	return "ok"
}

// attestation judges an attestation of the node's key whose SVID it is of.
func (r *vectorReader) attestation(ring *Keyring, text string) string {
	doc, _, _ := ring.Keys(r.origin)

	jws, err := compact.Parse(text, signed.TypeAttestation, maxAttestation, "alg", "typ", "x5c")
	if err != nil {
		return verdictOf(err)
	}

	parsed, err := parseAttestation(jws.Payload)
	if err != nil && !errors.Is(err, signed.ErrUnsupported) {
		return "json"
	}

	key := doc.Keys[0]
	if err == nil && parsed.node == doc.Keys[1].Node {
		key = doc.Keys[1]
	}

	_, err = verifyAttestation(text, key, r.origin, r.bundles, time.Now())

	return verdictOf(err)
}

// policyOfAll is a policy that asks for all of some witnesses; nil for none.
func policyOfAll(t *testing.T, vkeys []string) *checkpoint.Policy {
	t.Helper()

	if len(vkeys) == 0 {
		return nil
	}

	text, group := "", "group all all"
	for _, vkey := range vkeys {
		name, _, _ := strings.Cut(vkey, "+")
		text += "witness " + name + " " + vkey + "\n"
		group += " " + name
	}

	policy, err := checkpoint.ParsePolicy(text + group + "\nquorum all\n")
	must(t, err)

	return policy
}

// verdictOf names an error of this package's readers.
func verdictOf(err error) string {
	for _, known := range []struct {
		err     error
		verdict string
	}{
		{signed.ErrUnsupported, "unsupported"},
		{compact.ErrForm, "format"},
		{signed.ErrHeader, "header"},
		{ErrKeysExpired, "expired"},
		{ErrKeyDocument, "json"},
		{signed.ErrKeyUnknown, "key_unknown"},
		{signed.ErrKeyRevoked, "key_revoked"},
		{signed.ErrSignature, "signature"},
	} {
		if errors.Is(err, known.err) {
			return known.verdict
		}
	}

	if err != nil {
		return "attestation"
	}

	return "ok"
}

// proofVerdict names why a proof file doesn't hold.
func proofVerdict(err error) string {
	for _, known := range []struct {
		err     error
		verdict string
	}{
		{ErrEquivocation, "equivocation"},
		{signed.ErrUnsupported, "unsupported"},
		{ErrFormat, "format"},
		{ErrExpired, "expired"},
		{ErrInclusion, "inclusion"},
		{ErrWitness, "witness"},
		{signed.ErrSignature, "signature"},
		{ErrKey, "key"},
	} {
		if errors.Is(err, known.err) {
			return known.verdict
		}
	}

	if err != nil {
		return err.Error()
	}

	return "ok"
}
