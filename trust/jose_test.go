package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/limit/certs"
	"github.com/roster-mesh/roster/trust/compact"
)

func bigFrom(b []byte) *big.Int { return new(big.Int).SetBytes(b) }

func b64(s string) string { return directory.B64.EncodeToString([]byte(s)) }

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

// forge signs whatever header and payload it is given by the true key: every
// signature holds, and only the form can be refused.
func forge(k *Key, header, payload string) string {
	input := b64(header) + "." + b64(payload)

	signature, err := k.private.Sign(nil, []byte(input), crypto.Hash(0))
	if err != nil {
		panic(err)
	}

	return input + "." + b64(string(signature))
}

// spare returns a text with the spare bits of a part's last character set.
func spare(jws string, part int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	parts := strings.Split(jws, ".")

	s := parts[part]
	if len(s)%4 == 0 {
		panic("the part has no spare bits")
	}

	last := strings.IndexByte(alphabet, s[len(s)-1])
	parts[part] = s[:len(s)-1] + alphabet[last|1:last|1+1]

	return strings.Join(parts, ".")
}

// Requirement: TRUST-011
func TestHostileJOSE(t *testing.T) {
	o := newOrigin(t, alpha)
	ring, _ := reader(t, o)
	_, err := ring.Adopt(alpha, o.jws(t))
	must(t, err)

	const payload = `{"a":1}` // 7 bytes: the payload part has spare bits too
	kid := o.key.ID()
	good := forge(o.key, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, payload)

	parts := strings.Split(good, ".")
	if _, _, err := ring.Verify(alpha, signed.TypePage, good); err != nil {
		t.Fatalf("the model of all that follows does not hold: %v", err)
	}

	if _, _, err := ring.Verify(alpha, signed.TypePage,
		forge(o.key, `{"typ":"adpage+jws","alg":"EdDSA","kid":"`+kid+`"}`, payload)); err != nil {
		t.Errorf("the header's members in another order: %v", err)
	}

	h := func(header string) string { return forge(o.key, strings.ReplaceAll(header, "KID", kid), payload) }
	full := `{"alg":"EdDSA","kid":"KID","typ":"adpage+jws"`
	public := string(signed.AppendJWK(nil, o.key.Public()))
	spki, err := x509.MarshalPKIXPublicKey(o.key.Public())
	must(t, err)
	mac := func(key []byte, alg string) string {
		input := b64(`{"alg":"`+alg+`","kid":"`+kid+`","typ":"adpage+jws"}`) + "." + b64(payload)
		m := hmac.New(sha256.New, key)
		m.Write([]byte(input))

		return input + "." + b64(string(m.Sum(nil)))
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	stranger, err := OpenKey(t.TempDir())
	must(t, err)
	long := strings.Repeat("x", compact.MaxSize)

	rows := map[string]string{
		// algorithms
		"alg none": h(`{"alg":"none","kid":"KID","typ":"adpage+jws"}`),
		"alg none without signature": b64(`{"alg":"none","kid":"`+kid+`","typ":"adpage+jws"}`) + "." + parts[1] +
			".",
		"alg None":                      h(`{"alg":"None","kid":"KID","typ":"adpage+jws"}`),
		"alg NONE":                      h(`{"alg":"NONE","kid":"KID","typ":"adpage+jws"}`),
		"alg empty":                     h(`{"alg":"","kid":"KID","typ":"adpage+jws"}`),
		"alg missing":                   h(`{"kid":"KID","typ":"adpage+jws"}`),
		"alg null":                      h(`{"alg":null,"kid":"KID","typ":"adpage+jws"}`),
		"alg a number":                  h(`{"alg":1,"kid":"KID","typ":"adpage+jws"}`),
		"alg an array":                  h(`{"alg":["EdDSA"],"kid":"KID","typ":"adpage+jws"}`),
		"alg in lower case":             h(`{"alg":"eddsa","kid":"KID","typ":"adpage+jws"}`),
		"alg Ed25519":                   h(`{"alg":"Ed25519","kid":"KID","typ":"adpage+jws"}`),
		"alg with a space":              h(`{"alg":"EdDSA ","kid":"KID","typ":"adpage+jws"}`),
		"alg HS256 said":                h(`{"alg":"HS256","kid":"KID","typ":"adpage+jws"}`),
		"HS256 by the public key":       mac(o.key.Public(), "HS256"),
		"HS256 by the public key's DER": mac(spki, "HS256"),
		"HS256 by the public key's PEM": mac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), "HS256"),
		"HS256 by the JWK":              mac([]byte(public), "HS256"),
		"EdDSA said of an HMAC":         mac(o.key.Public(), "EdDSA"),
		"ES256 by another key": signAs(t, jose.ES256, p256,
			(&jose.SignerOptions{}).WithType("adpage+jws").WithHeader("kid", kid), []byte(payload)),
		"EdDSA by a stranger": forge(stranger, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, payload),
		"a stranger's kid": forge(stranger,
			`{"alg":"EdDSA","kid":"`+stranger.ID()+`","typ":"adpage+jws"}`, payload),
		// where keys could be named
		"jku":              h(full + `,"jku":"https://evil.test/keys"}`),
		"x5u":              h(full + `,"x5u":"https://evil.test/chain"}`),
		"jwk":              h(full + `,"jwk":` + public + `}`),
		"jwk for kid":      h(`{"alg":"EdDSA","jwk":` + public + `,"typ":"adpage+jws"}`),
		"x5c":              h(full + `,"x5c":["` + x5c(o.svid)[0] + `"]}`),
		"x5c for kid":      h(`{"alg":"EdDSA","typ":"adpage+jws","x5c":["` + x5c(o.svid)[0] + `"]}`),
		"x5t":              h(full + `,"x5t":"AAAA"}`),
		"x5t#S256":         h(full + `,"x5t#S256":"` + kid + `"}`),
		"kid missing":      h(`{"alg":"EdDSA","typ":"adpage+jws"}`),
		"kid empty":        h(`{"alg":"EdDSA","kid":"","typ":"adpage+jws"}`),
		"kid null":         h(`{"alg":"EdDSA","kid":null,"typ":"adpage+jws"}`),
		"kid a number":     h(`{"alg":"EdDSA","kid":7,"typ":"adpage+jws"}`),
		"kid a path":       h(`{"alg":"EdDSA","kid":"../../dev/null","typ":"adpage+jws"}`),
		"kid padded":       h(`{"alg":"EdDSA","kid":"KID=","typ":"adpage+jws"}`),
		"kid with a space": h(`{"alg":"EdDSA","kid":" KID","typ":"adpage+jws"}`),
		"kid of 32 others": h(`{"alg":"EdDSA","kid":"` + strings.Repeat("A", 43) + `","typ":"adpage+jws"}`),
		"kid in a URI form": h(`{"alg":"EdDSA","kid":"urn:ietf:params:oauth:jwk-thumbprint:sha-256:KID",` +
			`"typ":"adpage+jws"}`),
		// extensions
		"crit":             h(full + `,"crit":["exp"]}`),
		"crit empty":       h(full + `,"crit":[]}`),
		"crit b64":         h(full + `,"b64":true,"crit":["b64"]}`),
		"b64 false":        h(full + `,"b64":false,"crit":["b64"]}`),
		"b64 without crit": h(full + `,"b64":false}`),
		"zip":              h(full + `,"zip":"DEF"}`),
		"enc":              h(full + `,"enc":"A256GCM"}`),
		"cty":              h(full + `,"cty":"json"}`),
		"nonce":            h(full + `,"nonce":"n"}`),
		"exp":              h(full + `,"exp":1}`),
		"an unknown one":   h(full + `,"x":1}`),
		// the header's form
		"alg twice":                  h(`{"alg":"EdDSA","alg":"EdDSA","kid":"KID","typ":"adpage+jws"}`),
		"alg twice, none first":      h(`{"alg":"none","alg":"EdDSA","kid":"KID","typ":"adpage+jws"}`),
		"kid twice":                  h(`{"alg":"EdDSA","kid":"x","kid":"KID","typ":"adpage+jws"}`),
		"typ twice":                  h(full + `,"typ":"adpage+jws"}`),
		"alg and Alg":                h(full + `,"Alg":"none"}`),
		"Alg for alg":                h(`{"Alg":"EdDSA","kid":"KID","typ":"adpage+jws"}`),
		"Kid for kid":                h(`{"alg":"EdDSA","Kid":"KID","typ":"adpage+jws"}`),
		"an escaped name":            h(`{"\u0061lg":"EdDSA","kid":"KID","typ":"adpage+jws"}`),
		"an escaped value":           h(`{"alg":"\u0045dDSA","kid":"KID","typ":"adpage+jws"}`),
		"an escaped plus":            h(`{"alg":"EdDSA","kid":"KID","typ":"adpage\u002bjws"}`),
		"white space":                h(`{ "alg":"EdDSA","kid":"KID","typ":"adpage+jws"}`),
		"white space at the end":     h(full + "}\n"),
		"a line break":               h("{\"alg\":\"EdDSA\",\n\"kid\":\"KID\",\"typ\":\"adpage+jws\"}"),
		"a byte order mark":          h("\ufeff" + full + `}`),
		"something behind":           h(full + `}{}`),
		"a trailing comma":           h(full + `,}`),
		"a comment":                  h(full + `/**/}`),
		"an array":                   h(`["EdDSA"]`),
		"null":                       h(`null`),
		"a string":                   h(`"EdDSA"`),
		"not JSON":                   h(`alg`),
		"invalid UTF-8":              h("{\"alg\":\"EdDSA\",\"kid\":\"KID\",\"typ\":\"adpage+jws\xff\"}"),
		"nested deep":                h(full + `,"x":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`),
		"an empty object":            h(`{}`),
		"typ missing":                h(`{"alg":"EdDSA","kid":"KID"}`),
		"typ of a head":              h(`{"alg":"EdDSA","kid":"KID","typ":"adhead+jws"}`),
		"typ in upper case":          h(`{"alg":"EdDSA","kid":"KID","typ":"ADPAGE+JWS"}`),
		"typ with application":       h(`{"alg":"EdDSA","kid":"KID","typ":"application/adpage+jws"}`),
		"typ JWT":                    h(`{"alg":"EdDSA","kid":"KID","typ":"JWT"}`),
		"typ null":                   h(`{"alg":"EdDSA","kid":"KID","typ":null}`),
		"an attestation as a page":   o.doc.Keys[0].Attestations[0],
		"a key document as a page":   o.jws(t),
		"a header that is not there": "." + parts[1] + "." + parts[2],
		// serialization
		"flattened JSON": fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1],
			parts[2]),
		"flattened, kid unprotected": fmt.Sprintf(`{"protected":%q,"header":{"kid":%q},"payload":%q,"signature":%q}`,
			parts[0], kid, parts[1], parts[2]),
		"general JSON": fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`,
			parts[1], parts[0], parts[2]),
		"general JSON, two": fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q},`+
			`{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2], parts[0], parts[2]),
		"two parts":            parts[0] + "." + parts[1],
		"four parts":           good + "." + parts[2],
		"five parts, a JWE":    good + "." + parts[1] + "." + parts[2],
		"an empty fourth part": good + ".",
		"dots":                 "..",
		"many dots":            strings.Repeat(".", 100000),
		"nothing":              "",
		"detached payload":     parts[0] + ".." + parts[2],
		"no signature":         parts[0] + "." + parts[1] + ".",
		"raw payload":          parts[0] + "." + payload + "." + parts[2],
		"a disclosure behind":  good + "~",
		"a JWE": b64(`{"alg":"dir","enc":"A256GCM"}`) + ".." + parts[1] + "." + parts[1] + "." +
			parts[2],
		// encoding
		"padded header":           parts[0] + "=." + parts[1] + "." + parts[2],
		"padded payload":          parts[0] + "." + parts[1] + "==." + parts[2],
		"padded signature":        good + "==",
		"spare bits in header":    spare(good, 0),
		"spare bits in payload":   spare(good, 1),
		"spare bits in signature": spare(good, 2),
		"a line break in header":  parts[0][:8] + "\n" + parts[0][8:] + "." + parts[1] + "." + parts[2],
		"CRLF in the payload":     parts[0] + "." + parts[1][:4] + "\r\n" + parts[1][4:] + "." + parts[2],
		"a line break at the end": good + "\n",
		"a space before":          " " + good,
		"a space behind":          good + " ",
		"a tab in the signature":  good[:len(good)-4] + "\t" + good[len(good)-4:],
		"NUL behind":              good + "\x00",
		"the standard alphabet":   strings.NewReplacer("-", "+", "_", "/").Replace(alphabetic(o.key, kid)),
		"percent-encoded":         strings.ReplaceAll(good, ".", "%2e"),
		// signature and payload
		"a signature byte less":    parts[0] + "." + parts[1] + "." + b64(raw(parts[2])[:63]),
		"a signature byte more":    parts[0] + "." + parts[1] + "." + b64(raw(parts[2])+"\x00"),
		"a signature of zeros":     parts[0] + "." + parts[1] + "." + b64(string(make([]byte, 64))),
		"s plus the group's order": parts[0] + "." + parts[1] + "." + b64(sPlusL(raw(parts[2]))),
		"a changed signature":      mutateSignature(good),
		"another payload":          parts[0] + "." + b64(`{"a":2}`) + "." + parts[2],
		"an empty payload":         parts[0] + "." + "." + parts[2],
		"another's header": b64(`{"alg":"EdDSA","kid":"`+stranger.ID()+`","typ":"adpage+jws"}`) + "." +
			parts[1] + "." + parts[2],
		"too large":  parts[0] + "." + b64(long) + "." + parts[2],
		"only large": long + "x",
	}

	tried := 0
	for name, jws := range rows {
		if jws == good {
			t.Errorf("%s: not hostile", name)
			continue
		}

		tried++
		start := time.Now()

		if payload, _, err := ring.Verify(alpha, signed.TypePage, jws); err == nil || payload != nil {
			t.Errorf("%s: taken (%.80s)", name, jws)
		}

		if d := time.Since(start); d > time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}

	if tried < 100 {
		t.Errorf("only %d inputs", tried)
	}
}

func raw(part string) string {
	b, err := directory.B64.DecodeString(part)
	if err != nil {
		panic(err)
	}

	return string(b)
}

// alphabetic is a good JWS with a character that the two alphabets write
// differently.
func alphabetic(k *Key, kid string) string {
	for i := 0; ; i++ {
		jws := forge(k, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, fmt.Sprintf(`{"a":%d}`, i))
		if strings.ContainsAny(jws, "-_") {
			return jws
		}
	}
}

// sPlusL adds the order of the group to the second half of an Ed25519 signature:
// the same point, another text (RFC 8032, 5.1.7).
func sPlusL(signature string) string {
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989",
		10)
	b := []byte(signature)

	s := make([]byte, 32)
	for i := range s {
		s[i] = b[63-i]
	}

	sum := bigFrom(s)
	sum.Add(sum, order).FillBytes(s)

	for i := range s {
		b[63-i] = s[i]
	}

	return string(b)
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
		"spare bits":          spare(good, 2),
		"too large":           text(own + strings.Repeat(" ", maxAttestation)),
		"nothing":             "",
		"two parts":           good[:strings.LastIndexByte(good, '.')],
	}
	for name, jws := range rows {
		if check(jws) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
