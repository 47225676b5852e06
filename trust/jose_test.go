package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/limit/certs"
)

// signAttestation signs any payload as an attestation.
func signAttestation(t testing.TB, svid *x509svid.SVID, payload []byte) string {
	t.Helper()
	alg, err := certs.AlgorithmOf(svid.PrivateKey.Public())
	must(t, err)

	options := (&jose.SignerOptions{}).WithType(signed.TypeAttestation).WithHeader("x5c", x5c(svid))

	return signAs(t, jose.SignatureAlgorithm(alg), svid.PrivateKey, options, payload)
}

func x5c(svid *x509svid.SVID) []string {
	var chain []string
	for _, c := range svid.Certificates {
		chain = append(chain, base64.StdEncoding.EncodeToString(c.Raw))
	}

	return chain
}

func signAs(t testing.TB, alg jose.SignatureAlgorithm, key any, options *jose.SignerOptions, payload []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	must(t, err)
	signed, err := signer.Sign(payload)
	must(t, err)
	jws, err := signed.CompactSerialize()
	must(t, err)

	if signer, ok := key.(crypto.Signer); ok {
		jws = lowS(jws, signer.Public())
	}

	return jws
}

// Requirement: TRUST-011
func TestHostileAttestations(t *testing.T) {
	o := newOrigin(t, alpha)
	_, bundles := reader(t, o)
	key := signed.SigningKey{Public: o.key.Public(), Node: o.svid.ID}
	at := attestation{node: o.svid.ID, public: o.key.Public(), time: time.Now().Unix()}
	payload := at.payload()
	check := func(jws string) error {
		_, err := verifyAttestation(jws, key, alpha, bundles, time.Now())
		return err
	}

	good := signAttestation(t, o.svid, payload)
	if err := check(good); err != nil {
		t.Fatalf("the model of all that follows does not hold: %v", err)
	}

	chain := x5c(o.svid)
	options := func() *jose.SignerOptions {
		return (&jose.SignerOptions{}).WithType(signed.TypeAttestation).WithHeader("x5c", chain)
	}
	sign := func(options *jose.SignerOptions) string {
		return signAs(t, jose.ES256, o.svid.PrivateKey, options, payload)
	}
	text := func(s string) string { return signAttestation(t, o.svid, []byte(s)) }
	own := string(payload)
	agent := issue(t, o.ca, "/agent/ada")

	many := make([]string, certs.MaxChain+1)
	for i := range many {
		many[i] = chain[0]
	}

	secret := []byte(strings.Repeat("k", 32))
	cut, last := good[:strings.LastIndexByte(good, '.')+1], good[strings.LastIndexByte(good, '.')+1:]

	rows := map[string]string{
		"kid beside x5c": sign(options().WithHeader("kid", o.key.ID())),
		"jku":            sign(options().WithHeader("jku", "https://evil.test")),
		"cty":            sign(options().WithContentType("json")),
		"no x5c":         sign((&jose.SignerOptions{}).WithType(signed.TypeAttestation)),
		"x5c empty": sign((&jose.SignerOptions{}).WithType(signed.TypeAttestation).
			WithHeader("x5c", []string{})),
		"x5c of another": sign((&jose.SignerOptions{}).WithType(signed.TypeAttestation).
			WithHeader("x5c", x5c(agent))),
		"x5c on two lines": sign((&jose.SignerOptions{}).WithType(signed.TypeAttestation).
			WithHeader("x5c", []string{chain[0][:64] + "\n" + chain[0][64:]})),
		"x5c too long":     sign((&jose.SignerOptions{}).WithType(signed.TypeAttestation).WithHeader("x5c", many)),
		"another typ":      sign((&jose.SignerOptions{}).WithType("JWT").WithHeader("x5c", chain)),
		"no typ":           sign((&jose.SignerOptions{}).WithHeader("x5c", chain)),
		"HS256":            signAs(t, jose.HS256, secret, options(), payload),
		"EdDSA by the key": signAs(t, jose.EdDSA, o.key.private, options(), payload),
		"a key that signs nothing": signAttestation(t, o.ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageKeyEncipherment
		}), payload),
		"an agent's":           signAttestation(t, agent, payload),
		"a member more":        text(strings.TrimSuffix(own, "}") + `,"x":1}`),
		"a member twice":       text(strings.TrimSuffix(own, "}") + `,"time":1}`),
		"white space":          text(own + " "),
		"another domain":       text(strings.Replace(own, `"alpha.test"`, `"beta.test"`, 1)),
		"another node":         text(strings.ReplaceAll(own, "/roster/node/1", "/roster/node/2")),
		"another order":        text(`{"node":"` + o.svid.ID.String() + `",` + strings.TrimPrefix(own, "{")),
		"a private key in jwk": text(strings.Replace(own, `"crv"`, `"d":"AAAA","crv"`, 1)),
		"time as text": text(`{"domain":"alpha.test","node":"` + o.svid.ID.String() + `","jwk":` +
			string(signed.AppendJWK(nil, o.key.Public())) + `,"time":"1"}`),
		"a changed signature": mutateSignature(good),
		"its twin":            twin(good, o.svid.PrivateKey.Public().(*ecdsa.PublicKey)),
		"spare bits":          cut + spareBits(last),
		"too large":           text(own + strings.Repeat(" ", maxAttestation)),
		"nothing":             "",
		"two parts":           strings.TrimSuffix(cut, "."),
	}
	for name, jws := range rows {
		if check(jws) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
