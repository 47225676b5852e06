package card

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/directory"
)

// signedCard returns a card with a signature over the payload, whose header names
// a place to get the key from as well.
func signedCard(t *testing.T, alg jose.SignatureAlgorithm, key any, kid, card, payload string) string {
	t.Helper()
	o := (&jose.SignerOptions{}).WithHeader("kid", kid).WithHeader("jku", "https://evil.example/jwks.json")

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}

	jws, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}

	compact, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}

	parts := strings.Split(compact, ".")

	return strings.TrimSuffix(card, "}") + `,"signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] +
		`"}]}`
}

func jwk(t *testing.T, kid string, key any) string {
	t.Helper()

	b, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: kid})
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

func TestSignedCards(t *testing.T) {
	es, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}

	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))

	const (
		card = `{ "name":"A\u0041", "description":"", "skills":[{"id":"s","tags":[""],"examples":[]}],` +
			` "capabilities":{"streaming":false,"extensions":[]}, "securitySchemes":{}, "u":null, "n":1.0e1 }`
		asItIs = `{"capabilities":{"extensions":[],"streaming":false},"description":"","n":10,"name":"AA",` +
			`"securitySchemes":{},"skills":[{"examples":[],"id":"s","tags":[""]}],"u":null}`
		bySpec = `{"capabilities":{"streaming":false},"description":"","n":10,"name":"AA",` +
			`"skills":[{"id":"s","tags":[""]}],"u":null}`
		noEmpties = `{"capabilities":{"streaming":false},"n":10,"name":"AA","skills":[{"id":"s"}]}`
	)
	for _, c := range []struct {
		what, card, key, kid, why string
	}{
		{"as it is", signedCard(t, jose.ES256, es, "k1", card, asItIs), jwk(t, "k1", &es.PublicKey), "k1", ""},
		{"by the specification", signedCard(t, jose.ES256, es, "k1", card, bySpec),
			`{"keys":[` + jwk(t, "k0", public) + "," + jwk(t, "k1", &es.PublicKey) + `]}`, "k1", ""},
		{"by libraries", signedCard(t, jose.EdDSA, private, "k2", card, noEmpties), text, "k2", ""},
		{"another card", signedCard(t, jose.ES256, es, "k1", card, strings.Replace(asItIs, "AA", "AB", 1)),
			jwk(t, "k1", &es.PublicKey), "", "is invalid"},
		{"another key of that name", signedCard(t, jose.ES256, es, "k1", card, asItIs), jwk(t, "k1", public), "",
			"is invalid"},
		{"another key", signedCard(t, jose.ES256, es, "k1", card, asItIs), jwk(t, "k2", &es.PublicKey), "",
			"none of the keys"},
		{"unsigned", card, text, "", "not signed"},
		{"nonsense", strings.TrimSuffix(card, "}") + `,"signatures":[{"protected":"e30","signature":"e30"}]}`, text,
			"", "can't be read"},
		{"a secret as its own key", signedCard(t, jose.HS256, der, "k1", card, asItIs), text, "", "can't be read"},
	} {
		var keys Keys
		if err := keys.Add([]byte(c.key)); err != nil {
			t.Fatal(err)
		}

		kid, err := keys.Verify([]byte(c.card))
		if kid != c.kid || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %q, %v; want %q, %s", c.what, kid, err, c.kid, c.why)
		}

		if c.what == "unsigned" && !errors.Is(err, ErrUnsigned) {
			t.Errorf("%v is not ErrUnsigned", err)
		}
	}

	for what, bad := range map[string]string{"a secret key": jwk(t, "k1", es),
		"a shared secret": `{"kty":"oct","k":"AAAA"}`, "nothing": "", "an empty PEM": "-----BEGIN ",
		"none":                 `{"keys":[]}`,
		"a private key in PEM": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))} {
		if err := new(Keys).Add([]byte(bad)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// A default value is left out where the specification implies it, and nothing else is: a signature would not
// cover it. The first is the example of A2A 1.0, 8.4.1.
func TestDefaultsOfCards(t *testing.T) {
	for _, c := range []struct{ card, want string }{
		{`{"name":"Example Agent","description":"",` +
			`"capabilities":{"streaming":false,"pushNotifications":false,"extensions":[]},"skills":[]}`,
			`{"capabilities":{"pushNotifications":false,"streaming":false},"description":"",` +
				`"name":"Example Agent","skills":[]}`},
		{`{"capabilities":{"extensions":[{"required":false,"uri":""},{"required":true,"uri":"u"}]},` +
			`"securitySchemes":{"a":{"b":{"bearerFormat":"","description":"d"}}}}`,
			`{"capabilities":{"extensions":[{},{"required":true,"uri":"u"}]},` +
				`"securitySchemes":{"a":{"b":{"description":"d"}}}}`},
	} {
		forms, err := canonicalForms([]byte(c.card))
		if err != nil {
			t.Fatal(err)
		}

		if string(forms[1]) != c.want {
			t.Errorf("got %s, want %s", forms[1], c.want)
		}
	}
}

// Whatever a card is, nobody unknown signed it.
func FuzzVerifyCard(f *testing.F) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}

	keys := Keys{keys: []jose.JSONWebKey{{Key: public}}}
	f.Add([]byte(`{"name":"A","signatures":[{"protected":"eyJhbGciOiJFZERTQSJ9","signature":"AAAA"}],` +
		`"x":[{"y":[null,{}]}]}`))
	f.Fuzz(func(t *testing.T, card []byte) {
		if kid, err := keys.Verify(card); err == nil {
			t.Fatalf("%s is signed by %q", directory.HashOf(card), kid)
		}
	})
}
