package compact

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

var must = directorytest.Must

func newKey(t testing.TB) (key ed25519.PrivateKey, kid string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	thumbprint, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	must(t, err)

	return key, b64(string(thumbprint))
}

func b64(s string) string { return directory.B64.EncodeToString([]byte(s)) }

func signES256(t testing.TB, key *ecdsa.PrivateKey, payload, kid string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{}).WithType("adpage+jws").WithHeader("kid", kid))
	must(t, err)
	jws, err := signer.Sign([]byte(payload))
	must(t, err)
	text, err := jws.CompactSerialize()
	must(t, err)

	return text
}

// forge signs whatever header and payload it is given by the true key: every
// signature holds, and only the form can be refused.
func forge(key ed25519.PrivateKey, header, payload string) string {
	input := b64(header) + "." + b64(payload)

	return input + "." + b64(string(ed25519.Sign(key, []byte(input))))
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

// Of a JWS by a signing key there is one form, and nothing that differs from it is taken, although its
// signature holds.
//
// Requirement: TRUST-011
func TestHostileJWS(t *testing.T) {
	key, kid := newKey(t)
	public := key.Public().(ed25519.PublicKey)
	check := func(jws string) (payload []byte, err error) {
		c, of, err := ParseOwn(jws, signed.TypePage, MaxSize)
		if err != nil {
			return nil, err
		}

		if of != kid {
			return nil, signed.ErrKeyUnknown
		}

		return c.Payload, VerifyOwn(jws, public)
	}

	const payload = `{"a":1}` // 7 bytes: the payload part has spare bits too
	good := forge(key, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, payload)

	parts := strings.Split(good, ".")
	if got, err := check(good); err != nil || string(got) != payload {
		t.Fatalf("the model of all that follows does not hold: %s, %v", got, err)
	}

	if _, err := check(forge(key, `{"typ":"adpage+jws","alg":"EdDSA","kid":"`+kid+`"}`, payload)); err != nil {
		t.Errorf("the header's members in another order: %v", err)
	}

	h := func(header string) string { return forge(key, strings.ReplaceAll(header, "KID", kid), payload) }
	full := `{"alg":"EdDSA","kid":"KID","typ":"adpage+jws"`
	jwk := string(signed.AppendJWK(nil, public))
	spki, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	mac := func(key []byte, alg string) string {
		input := b64(`{"alg":"`+alg+`","kid":"`+kid+`","typ":"adpage+jws"}`) + "." + b64(payload)
		m := hmac.New(sha256.New, key)
		m.Write([]byte(input))

		return input + "." + b64(string(m.Sum(nil)))
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	stranger, strangersKID := newKey(t)
	long := strings.Repeat("x", MaxSize)

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
		"HS256 by the public key":       mac(public, "HS256"),
		"HS256 by the public key's DER": mac(spki, "HS256"),
		"HS256 by the public key's PEM": mac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), "HS256"),
		"HS256 by the JWK":              mac([]byte(jwk), "HS256"),
		"EdDSA said of an HMAC":         mac(public, "EdDSA"),
		"ES256 by another key":          signES256(t, p256, payload, kid),
		"EdDSA by a stranger":           forge(stranger, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, payload),
		"a stranger's kid": forge(stranger,
			`{"alg":"EdDSA","kid":"`+strangersKID+`","typ":"adpage+jws"}`, payload),
		// where keys could be named
		"jku":              h(full + `,"jku":"https://evil.test/keys"}`),
		"x5u":              h(full + `,"x5u":"https://evil.test/chain"}`),
		"jwk":              h(full + `,"jwk":` + jwk + `}`),
		"jwk for kid":      h(`{"alg":"EdDSA","jwk":` + jwk + `,"typ":"adpage+jws"}`),
		"x5c":              h(full + `,"x5c":["` + b64(jwk) + `"]}`),
		"x5c for kid":      h(`{"alg":"EdDSA","typ":"adpage+jws","x5c":["` + b64(jwk) + `"]}`),
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
		"a carriage return":       good[:len(good)-4] + "\r" + good[len(good)-4:],
		"a tab in the signature":  good[:len(good)-4] + "\t" + good[len(good)-4:],
		"NUL behind":              good + "\x00",
		"the standard alphabet":   strings.NewReplacer("-", "+", "_", "/").Replace(alphabetic(key, kid)),
		"percent-encoded":         strings.ReplaceAll(good, ".", "%2e"),
		// signature and payload
		"a signature byte less":    parts[0] + "." + parts[1] + "." + b64(raw(parts[2])[:63]),
		"a signature byte more":    parts[0] + "." + parts[1] + "." + b64(raw(parts[2])+"\x00"),
		"a signature of zeros":     parts[0] + "." + parts[1] + "." + b64(string(make([]byte, 64))),
		"s plus the group's order": parts[0] + "." + parts[1] + "." + b64(sPlusL(raw(parts[2]))),
		"a changed signature":      parts[0] + "." + parts[1] + "." + b64(raw(parts[2])[:63]+"x"),
		"another payload":          parts[0] + "." + b64(`{"a":2}`) + "." + parts[2],
		"an empty payload, signed": forge(key, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, ""),
		"an empty payload":         parts[0] + "." + "." + parts[2],
		"another's header": b64(`{"alg":"EdDSA","kid":"`+strangersKID+`","typ":"adpage+jws"}`) + "." +
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

		if _, err := check(jws); err == nil {
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
func alphabetic(key ed25519.PrivateKey, kid string) string {
	for i := 0; ; i++ {
		jws := forge(key, `{"alg":"EdDSA","kid":"`+kid+`","typ":"adpage+jws"}`, fmt.Sprintf(`{"a":%d}`, i))
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

	sum := new(big.Int).SetBytes(s)
	sum.Add(sum, order).FillBytes(s)

	for i := range s {
		b[63-i] = s[i]
	}

	return string(b)
}

// What is signed here is taken by the key that signed it, and by no other, whatever its length.
//
// Requirement: TRUST-011
func TestSignaturesAreOfTheirKey(t *testing.T) {
	key, kid := newKey(t)
	other, _ := newKey(t)
	public := key.Public().(ed25519.PublicKey)

	jws, err := Sign(key, kid, signed.TypeHead, []byte("payload as it is"))
	must(t, err)

	c, of, err := ParseOwn(jws, signed.TypeHead, len(jws))
	if err != nil || of != kid || string(c.Payload) != "payload as it is" || VerifyOwn(jws, public) != nil {
		t.Errorf("it is read as %s by %s: %v", c.Payload, of, err)
	}

	if _, _, err := ParseOwn(jws, signed.TypeHead, len(jws)-1); !errors.Is(err, ErrForm) {
		t.Errorf("over its bound: %v", err)
	}

	// The form is judged before the signature.
	if _, _, err := ParseOwn(jws[:len(jws)-2], signed.TypeHead, MaxSize); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("a signature that is too short: %v", err)
	}

	if c, err := Split(jws, MaxSize, "alg", "typ", "x5c"); !errors.Is(err, signed.ErrHeader) {
		t.Errorf("other members than the expected ones: %v, %v", c, err)
	}

	for name, err := range map[string]error{
		"another key":     VerifyOwn(jws, other.Public().(ed25519.PublicKey)),
		"a shorter key":   VerifyOwn(jws, public[1:]),
		"no key":          VerifyOwn(jws, nil),
		"no parts":        VerifyOwn("", public),
		"another library": VerifySignature(jws, jose.EdDSA, other.Public()),
	} {
		if !errors.Is(err, signed.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The algorithm is the verifier's choice, not the header's.
	if err := VerifySignature(jws, jose.ES256, public); !errors.Is(err, signed.ErrHeader) {
		t.Errorf("by another algorithm: %v", err)
	}

	must(t, VerifySignature(jws, jose.EdDSA, public))
}
