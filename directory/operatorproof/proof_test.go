package operatorproof

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1793491200, 0)

func request() Request {
	return Request{
		Domain: "alpha.test", Method: "PUT", URL: "https://n1.alpha.test:8400/v1/operator/policy?x=1",
		Body: sha256.Sum256([]byte("{}")),
	}
}

func certificate(t *testing.T, key crypto.Signer) *tls.Certificate {
	t.Helper()

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: now.Add(time.Hour)}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func keys(t *testing.T) map[string]crypto.Signer {
	t.Helper()

	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	small, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	prime, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	return map[string]crypto.Signer{"EdDSA": edwards, "ES256": small, "ES384": large, "RS256": prime}
}

func made(t *testing.T, by *tls.Certificate) string {
	t.Helper()

	text, err := Make(by, request(), now)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

// A proof by a key of each kind that an SVID has holds for its request, at each node of the
// domain, while it lives.
//
// Requirement: SEC-012
func TestAProofHoldsForItsRequest(t *testing.T) {
	for alg, key := range keys(t) {
		proof, err := Parse(made(t, certificate(t, key)))
		if err != nil {
			t.Fatalf("%s: %v", alg, err)
		}

		there := request()
		there.URL = "/v1/operator/policy?x=1"

		for _, at := range []time.Time{now.Add(-Skew), now, now.Add(life/2 - time.Second)} {
			if err := proof.Covers(there, at); err != nil {
				t.Errorf("%s at %s: %v", alg, at, err)
			}
		}

		if err := proof.VerifySignature(); err != nil || proof.alg != alg {
			t.Errorf("%s: %s %v", alg, proof.alg, err)
		}
	}
}

// A proof is good for nothing but its request.
//
// Requirement: SEC-012
func TestAProofIsGoodForNothingElse(t *testing.T) {
	proof, err := Parse(made(t, certificate(t, keys(t)["ES256"])))
	if err != nil {
		t.Fatal(err)
	}

	for name, change := range map[string]func(*Request, *time.Time){
		"aud":    func(r *Request, _ *time.Time) { r.Domain = "beta.test" },
		"htm":    func(r *Request, _ *time.Time) { r.Method = "POST" },
		"path":   func(r *Request, _ *time.Time) { r.URL = "/v1/operator/peers?x=1" },
		"query":  func(r *Request, _ *time.Time) { r.URL = "/v1/operator/policy?x=2" },
		"bh":     func(r *Request, _ *time.Time) { r.Body[0] ^= 1 },
		"ended":  func(_ *Request, at *time.Time) { *at = now.Add(life / 2) },
		"future": func(_ *Request, at *time.Time) { *at = now.Add(-Skew - time.Second) },
	} {
		r, at := request(), now
		change(&r, &at)

		if err := proof.Covers(r, at); err == nil {
			t.Errorf("%s: the proof holds", name)
		}
	}

	proof.claims.Expires = now.Add(life + time.Second).Unix()
	proof.Expires = time.Unix(proof.claims.Expires, 0)

	if err := proof.Covers(request(), now); err == nil {
		t.Error("a proof of over 60 s holds")
	}
}

// A changed proof, and one by another key than its certificate's, is refused.
//
// Requirement: SEC-012
func TestAForgedProofIsRefused(t *testing.T) {
	all := keys(t)
	for alg, key := range all {
		text := made(t, certificate(t, key))
		parts := strings.Split(text, ".")

		other := all["ES256"]
		if alg == "ES256" {
			other = all["ES384"]
		}

		stolen := &tls.Certificate{Certificate: certificate(t, key).Certificate, PrivateKey: other}

		typed := b64.EncodeToString([]byte(`{"alg":"` + alg + `","typ":"wpt+jwt","x5c":["AA=="]}`))

		forged := map[string]string{
			"none":      b64.EncodeToString([]byte(`{"alg":"none","typ":"roster-op+jwt"}`)) + "." + parts[1] + ".",
			"unsigned":  parts[0] + "." + parts[1] + ".",
			"typ":       strings.Replace(text, parts[0], typed, 1),
			"twice":     parts[0] + "." + b64.EncodeToString([]byte(`{"aud":"a","aud":"b"}`)) + "." + parts[2],
			"member":    parts[0] + "." + b64.EncodeToString([]byte(`{"crit":"b"}`)) + "." + parts[2],
			"claims":    parts[0] + "." + strings.Split(made(t, certificate(t, key)), ".")[1] + "." + parts[2],
			"other key": made(t, stolen),
			"large":     text + strings.Repeat("A", maxSize),
			"empty":     "",
		}
		for name, text := range forged {
			proof, err := Parse(text)
			if err == nil {
				err = proof.VerifySignature()
			}

			if err == nil {
				t.Errorf("%s: %s holds", alg, name)
			}
		}
	}
}

// Requirement: SEC-012
func FuzzParse(f *testing.F) {
	f.Add("e30.e30.e30")
	f.Fuzz(func(_ *testing.T, text string) {
		if proof, err := Parse(text); err == nil {
			_ = proof.VerifySignature()
			_ = proof.Covers(request(), now)
		}
	})
}
