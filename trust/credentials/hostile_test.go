package credentials

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A hostile is a request that must be refused, and why.
type hostile struct {
	name  string
	shown Shown
	want  Reason
}

// A family is one kind of token: how an honest one is made, and how it is shown.
type family struct {
	name   string
	honest func() *jwt
	show   func(text string) Shown
	// What the family answers where another would answer otherwise; the common
	// answer where there is none.
	instead map[string]Reason
	without []string // mutations that are none of this family's
}

func (d *door) families(t testing.TB) []family {
	wit := d.wit(t).text(t)
	bearer := func(text string) Shown { return Shown{TLS: shownBy(d.svid), Bearer: text} }

	return []family{
		{"wit", func() *jwt { return d.wit(t) }, func(text string) Shown {
			return d.workloadShown(t, text, d.wpt(text))
		}, nil, nil},
		{"wpt", func() *jwt { return d.wpt(wit) }, func(text string) Shown {
			return Shown{WIT: wit, Proof: text, Method: "POST", Path: "/ad/r"}
		},
			nil, []string{"no kid", "kid of nobody", "kid as a path", "kid of another algorithm",
				"another key under its kid"}},
		{"access token", d.access, bearer, map[string]Reason{"no typ": ReasonSubject, "typ JWT": ReasonSubject},
			[]string{"typ at+jwt"}},
		{"jwt-svid", d.jwtSVID, bearer, map[string]Reason{"typ at+jwt": ReasonIssuer, "RS256 by an RSA key": ReasonKey,
			"alg ES384": ReasonKey}, []string{"no typ", "typ JWT"}},
	}
}

// mutations are what may be done to a token of any kind, with the reason by which
// it is refused.
func (d *door) mutations(t testing.TB) map[string]struct {
	change func(*jwt)
	want   Reason
} {
	type m = struct {
		change func(*jwt)
		want   Reason
	}
	header := func(name string, v any) func(*jwt) { return func(j *jwt) { j.header[name] = v } }
	claim := func(name string, v any) func(*jwt) { return func(j *jwt) { j.claims[name] = v } }
	publicPEM, err := x509.MarshalPKIXPublicKey(d.issuer.Public())
	must(t, err)
	hmacWith := func(alg string, key []byte) func(*jwt) {
		return func(j *jwt) { j.header["alg"], j.key = alg, key }
	}
	raw := func(in func(*jwt) *string, of func(*jwt) map[string]any, edit func(string) string) func(*jwt) {
		return func(j *jwt) {
			text, err := json.Marshal(of(j))
			must(t, err)
			*in(j) = edit(string(text))
		}
	}
	rawHeader := func(edit func(string) string) func(*jwt) {
		return raw(func(j *jwt) *string { return &j.rawHeader }, func(j *jwt) map[string]any { return j.header }, edit)
	}
	rawClaims := func(edit func(string) string) func(*jwt) {
		return raw(func(j *jwt) *string { return &j.rawClaims }, func(j *jwt) map[string]any { return j.claims }, edit)
	}
	add := func(member string) func(string) string {
		return func(s string) string { return "{" + member + "," + s[1:] }
	}
	now := time.Now()
	all := map[string]m{
		"alg none":                  {header("alg", "none"), ReasonAlgorithm},
		"alg None":                  {header("alg", "None"), ReasonAlgorithm},
		"alg NONE":                  {header("alg", "NONE"), ReasonAlgorithm},
		"alg of another case":       {header("alg", "es256"), ReasonAlgorithm},
		"alg ES384":                 {header("alg", "ES384"), ReasonAlgorithm},
		"alg unknown":               {header("alg", "ES256K"), ReasonAlgorithm},
		"HS256 with the public key": {hmacWith("HS256", publicPEM), ReasonAlgorithm},
		"HS384 with the public key": {hmacWith("HS384", publicPEM), ReasonAlgorithm},
		"HS256 with nothing":        {hmacWith("HS256", []byte{}), ReasonAlgorithm},
		"HMAC that says ES256":      {hmacWith("ES256", publicPEM), ReasonSignature},
		"RS256 by an RSA key":       {func(j *jwt) { j.header["alg"], j.key = "RS256", d.rsa }, ReasonAlgorithm},
		"no alg":                    {func(j *jwt) { delete(j.header, "alg") }, ReasonHeader},
		"alg a number":              {header("alg", 256), ReasonHeader},
		"alg a list":                {header("alg", []string{"ES256"}), ReasonHeader},
		"alg null":                  {header("alg", nil), ReasonHeader},
		"typ a number":              {header("typ", 1), ReasonHeader},
		"kid a number":              {header("kid", 1), ReasonHeader},
		"jku":                       {header("jku", "https://evil.example/jwks"), ReasonHeader},
		"jwk": {func(j *jwt) {
			j.header["jwk"], j.key = publicJWK(t, d.other.Public(), "ES256"), d.other
		}, ReasonHeader},
		"x5u":                       {header("x5u", "https://evil.example/x5u"), ReasonHeader},
		"x5c":                       {header("x5c", []string{"MIIB"}), ReasonHeader},
		"crit":                      {header("crit", []string{"exp"}), ReasonHeader},
		"crit empty":                {header("crit", []string{}), ReasonHeader},
		"b64 false":                 {header("b64", false), ReasonHeader},
		"zip":                       {header("zip", "DEF"), ReasonHeader},
		"enc":                       {header("enc", "A256GCM"), ReasonHeader},
		"cty JWT":                   {header("cty", "JWT"), ReasonHeader},
		"no typ":                    {func(j *jwt) { delete(j.header, "typ") }, ReasonType},
		"typ JWT":                   {header("typ", "JWT"), ReasonType},
		"typ at+jwt":                {header("typ", "at+jwt"), ReasonType},
		"typ secevent+jwt":          {header("typ", "secevent+jwt"), ReasonType},
		"typ of our own records":    {header("typ", signed.TypeRecord), ReasonType},
		"no kid":                    {func(j *jwt) { delete(j.header, "kid") }, ReasonKey},
		"kid of nobody":             {header("kid", "k9"), ReasonKey},
		"kid as a path":             {header("kid", "../../dev/null"), ReasonKey},
		"kid of another algorithm":  {header("kid", "r1"), ReasonKey},
		"another key under its kid": {func(j *jwt) { j.key = d.other }, ReasonSignature},
		"another key":               {func(j *jwt) { j.key = ecKey(t) }, ReasonSignature},
		"header twice alg":          {rawHeader(add(`"alg":"none"`)), ReasonForm},
		"header twice kid":          {rawHeader(func(s string) string { return `{"x":1,"x":2,` + s[1:] }), ReasonForm},
		"header a list":             {rawHeader(func(s string) string { return "[" + s + "]" }), ReasonForm},
		"header and more":           {rawHeader(func(s string) string { return s + "{}" }), ReasonForm},
		"header not JSON":           {rawHeader(func(s string) string { return "alg=ES256" }), ReasonForm},
		"header not UTF-8":          {rawHeader(add("\"x\":\"\xff\"")), ReasonForm},
		"claims twice sub":          {rawClaims(func(s string) string { return `{"x":1,"x":1,` + s[1:] }), ReasonForm},
		"claims twice within":       {rawClaims(add(`"x":{"y":1,"y":2}`)), ReasonForm},
		"claims twice by an escape": {rawClaims(add(`"z":1,"\u007a":2`)), ReasonForm},
		"claims a list":             {rawClaims(func(s string) string { return "[" + s + "]" }), ReasonForm},
		"claims a string":           {rawClaims(func(s string) string { return `"sub"` }), ReasonForm},
		"claims and more":           {rawClaims(func(s string) string { return s + "x" }), ReasonForm},
		"claims not UTF-8":          {rawClaims(add("\"x\":\"\xff\"")), ReasonForm},
		"claims behind a BOM":       {rawClaims(func(s string) string { return "\ufeff" + s }), ReasonForm},
		"claims too deep": {rawClaims(add(`"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70))),
			ReasonForm},
		"claims are another token": {rawClaims(func(string) string { return d.jwtSVID().text(t) }), ReasonForm},
		"no exp":                   {func(j *jwt) { delete(j.claims, "exp") }, ReasonUnlimited},
		"exp a string":             {claim("exp", "2099-01-01"), ReasonClaims},
		"exp null":                 {claim("exp", nil), ReasonClaims},
		"exp negative":             {claim("exp", -1), ReasonClaims},
		"exp beyond all":           {claim("exp", 1e300), ReasonClaims},
		"expired":                  {claim("exp", now.Add(-time.Second).Unix()), ReasonExpired},
		"expired in 1970":          {claim("exp", 0), ReasonExpired},
		"nbf ahead":                {claim("nbf", now.Add(time.Hour).Unix()), ReasonNotYetValid},
		"nbf a string":             {claim("nbf", "now"), ReasonClaims},
		"iat ahead":                {claim("iat", now.Add(time.Hour).Unix()), ReasonNotYetValid},
		"iat true":                 {claim("iat", true), ReasonClaims},
		"oversize":                 {claim("x", strings.Repeat("x", maxToken)), ReasonSize},
	}

	return all
}

// misshapen are what may be done to a token's text.
func misshapen(t testing.TB, text string) map[string]string {
	parts := strings.Split(text, ".")
	flip := func(i int) string {
		raw, err := directory.B64.DecodeString(parts[i])
		must(t, err)
		raw[len(raw)/2] ^= 1

		return directory.B64.EncodeToString(raw)
	}
	flattened, err := json.Marshal(map[string]any{"payload": parts[1], "protected": parts[0], "signature": parts[2]})
	must(t, err)
	unprotected, err := json.Marshal(map[string]any{"payload": parts[1],
		"header": map[string]string{"alg": "ES256", "kid": "k1"}, "signature": parts[2]})
	must(t, err)
	general, err := json.Marshal(map[string]any{"payload": parts[1],
		"signatures": []any{map[string]any{"protected": parts[0], "signature": parts[2],
			"header": map[string]string{"kid": "k1"}}}})
	must(t, err)
	last := parts[2][len(parts[2])-1]
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// 64 bytes leave four bits
	spare := parts[2][:len(parts[2])-1] + string(alphabet[strings.IndexByte(alphabet, last)^1])

	return map[string]string{
		"one part": parts[0], "two parts": parts[0] + "." + parts[1], "four parts": text + ".",
		"five parts, a JWE": text + "." + parts[1] + "." + parts[2],
		"no signature":      parts[0] + "." + parts[1] + ".", "no payload": parts[0] + ".." + parts[2],
		"no header":    "." + parts[1] + "." + parts[2],
		"padded":       parts[0] + "." + parts[1] + "." + parts[2] + "==",
		"spare bits":   parts[0] + "." + parts[1] + "." + spare,
		"a line break": parts[0] + "." + parts[1] + "\n." + parts[2], "a space before": " " + text,
		"a space behind":     text + " ",
		"the other alphabet": parts[0] + "." + parts[1] + "." + parts[2][:10] + "+" + parts[2][11:],
		"a NUL":              text + "\x00",
		"flattened JSON":     string(flattened), "unprotected header": string(unprotected),
		"general JSON": string(general),
		"dots":         strings.Repeat(".", 4000), "not base64": "%%%.%%%.%%%",
		"!signature flipped": parts[0] + "." + parts[1] + "." + flip(2),
		"!signature cut": parts[0] + "." + parts[1] + "." +
			directory.B64.EncodeToString(must1(t)(directory.B64.DecodeString(parts[2]))[:40]),
		"!signature of zeros": parts[0] + "." + parts[1] + "." + directory.B64.EncodeToString(make([]byte, 64)),
	}
}

func must1(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		must(t, err)

		return b
	}
}

// particular are the mutations of one kind of token alone.
func (d *door) particular(t testing.TB) []hostile {
	var list []hostile

	wit := func(name string, want Reason, change func(*jwt)) {
		j := d.wit(t)
		change(j)
		text := j.text(t)
		list = append(list, hostile{"wit: " + name, d.workloadShown(t, text, d.wpt(text)), want})
	}
	for _, sub := range []string{
		"", "ada", "alpha.test/agent/ada", "wimse://alpha.test", "wimse://alpha.test/", "wimse:///agent/ada",
		"WIMSE://alpha.test/agent/ada",
		"wimse://Alpha.test/agent/ada", "wimse://alpha.test/agent/ada/", "wimse://alpha.test//agent/ada",
		"wimse://alpha.test/agent/%61da",
		"wimse://alpha.test:443/agent/ada", "wimse://root@alpha.test/agent/ada", "wimse://alpha.test/agent/ada?x=1",
		"wimse://alpha.test/agent/ada#x",
		"wimse://alpha.test/agent/../eve", "wimse://alpha.test/./ada", "https://alpha.test/agent/ada",
		"oauth:https://login.alpha.test#ada", "oauth:https://login.alpha.test/realm#ada",
		"wimse://alpha.test/" + strings.Repeat("x", 2048), "wimse://alpha.test/agent/\u00e4da",
		" wimse://alpha.test/agent/ada", "wimse://alpha.test/roster/node/1", "wimse://alpha.test/roster/source/crawl",
		"spiffe://alpha.test/roster/gateway/1",
	} {
		wit("sub "+sub, ReasonSubject, func(j *jwt) { j.claims["sub"] = sub })
	}

	wit("no sub", ReasonSubject, func(j *jwt) { delete(j.claims, "sub") })
	wit("sub a list", ReasonSubject, func(j *jwt) { j.claims["sub"] = []string{"wimse://alpha.test/agent/ada"} })
	wit("sub of another domain", ReasonIssuer, func(j *jwt) { j.claims["sub"] = "wimse://beta.test/agent/ada" })
	wit("sub of a domain without a bundle", ReasonIssuer, func(j *jwt) {
		j.claims["sub"] = "spiffe://beta.test/agent/ada"
	})
	wit("iss of another", ReasonIssuer, func(j *jwt) { j.claims["iss"] = "https://evil.example" })
	wit("no iss", ReasonIssuer, func(j *jwt) { delete(j.claims, "iss") })
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	private, err := (&jose.JSONWebKey{Key: d.workload, Algorithm: "ES256"}).MarshalJSON()
	must(t, err)
	unnamed := publicJWK(t, d.workload.Public(), "")
	delete(unnamed, "alg")

	for name, cnf := range map[string]any{
		"null": nil, "empty": map[string]any{}, "a string": "key", "a thumbprint": map[string]any{"jkt": "x"},
		"a URL":                map[string]any{"jku": "https://evil.example"},
		"jwk empty":            map[string]any{"jwk": map[string]any{}},
		"jwk private":          map[string]any{"jwk": json.RawMessage(private)},
		"jwk symmetric":        map[string]any{"jwk": map[string]any{"kty": "oct", "k": "AAAA", "alg": "HS256"}},
		"jwk without alg":      map[string]any{"jwk": unnamed},
		"jwk with alg none":    map[string]any{"jwk": publicJWK(t, d.workload.Public(), "none")},
		"jwk with HS256":       map[string]any{"jwk": publicJWK(t, d.workload.Public(), "HS256")},
		"jwk with another alg": map[string]any{"jwk": publicJWK(t, d.workload.Public(), "EdDSA")},
		"jwk with RS512":       map[string]any{"jwk": publicJWK(t, d.rsa.Public(), "RS512")},
		"jwk weak":             map[string]any{"jwk": publicJWK(t, weak.Public(), "RS256")},
		"jwk off the curve": map[string]any{"jwk": map[string]any{"kty": "EC", "crv": "P-256", "alg": "ES256",
			"x": strings.Repeat("A", 43), "y": strings.Repeat("A", 43)}},
	} {
		wit("cnf "+name, ReasonClaims, func(j *jwt) { j.claims["cnf"] = cnf })
	}

	wit("no cnf", ReasonClaims, func(j *jwt) { delete(j.claims, "cnf") })
	wit("another's cnf", ReasonSignature, func(j *jwt) {
		j.claims["cnf"] = map[string]any{"jwk": publicJWK(t, d.other.Public(), "ES256")}
	})

	return slices.Concat(list, d.hostileProofs(t), d.hostileAccess(t), d.hostileJWTSVIDs(t), d.combined(t))
}

func (d *door) hostileProofs(t testing.TB) (list []hostile) {
	honest := d.wit(t).text(t)

	add := func(name string, want Reason, change func(*jwt)) {
		j := d.wpt(honest)
		change(j)
		list = append(list, hostile{"wpt: " + name,
			Shown{WIT: honest, Proof: j.text(t), Method: "POST", Path: "/ad/r"}, want})
	}
	for name, aud := range map[string]any{
		"of another host": "https://evil.example/ad/r", "of http": "http://ad.alpha.test/ad/r",
		"of another path": doorURL + "/ad/l", "without path": doorURL,
		"of another port": doorURL + ":8443/ad/r", "with a query": doorURL + "/ad/r?agent=x",
		"with a fragment": doorURL + "/ad/r#x", "with a slash behind": doorURL + "/ad/r/",
		"of another case": "https://AD.alpha.test/ad/r", "a wildcard": "*",
		"a wildcard host": "https://*.alpha.test/ad/r", "a wildcard beside": []string{doorURL + "/ad/r", "*"},
		"empty": "", "an empty list": []string{}, "a number": 1, "null": nil, "a list of numbers": []int{1},
		"an object": map[string]any{},
	} {
		add("aud "+name, ReasonAudience, func(j *jwt) { j.claims["aud"] = aud })
	}

	add("no aud", ReasonAudience, func(j *jwt) { delete(j.claims, "aud") })
	other := d.wit(t)

	other.claims["sub"] = "wimse://alpha.test/agent/eve"
	for name, wth := range map[string]any{
		"of another token": tokenHash(other.text(t)), "empty": "", "null": nil, "a number": 1,
		"padded": tokenHash(honest) + "=",
		"in hex": strings.Repeat("ab", 32), "in standard base64": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"the token itself": honest,
	} {
		add("wth "+name, ReasonBinding, func(j *jwt) { j.claims["wth"] = wth })
	}

	add("no wth", ReasonBinding, func(j *jwt) { delete(j.claims, "wth") })

	for name, jti := range map[string]any{"empty": "", "null": nil, "a number": 7,
		"too long": strings.Repeat("x", maxJTI+1), "a list": []string{"x"}} {
		add("jti "+name, ReasonClaims, func(j *jwt) { j.claims["jti"] = jti })
	}

	add("no jti", ReasonClaims, func(j *jwt) { delete(j.claims, "jti") })
	add("too long", ReasonLifetime, func(j *jwt) { j.claims["exp"] = time.Now().Add(maxProofLife + time.Hour).Unix() })
	add("of a transaction token", ReasonTokenBound, func(j *jwt) { j.claims["tth"] = tokenHash("x") })
	add("of another header", ReasonTokenBound, func(j *jwt) {
		j.claims["oth"] = map[string]any{"x-user": tokenHash("x")}
	})

	for name, htm := range map[string]any{"of another": "DELETE", "of another case": "post", "empty": "", "null": nil,
		"a list": []string{"POST"}} {
		add("htm "+name, ReasonMethod, func(j *jwt) { j.claims["htm"] = htm })
	}

	add("by the issuer", ReasonSignature, func(j *jwt) { j.key = d.issuer })

	return list
}

func (d *door) hostileAccess(t testing.TB) (list []hostile) {
	add := func(name string, want Reason, change func(*jwt)) {
		j := d.access()
		change(j)
		list = append(list, hostile{"access token: " + name, Shown{TLS: shownBy(d.svid), Bearer: j.text(t)}, want})
	}
	for name, iss := range map[string]any{
		"of another": "https://evil.example", "with a slash": doorIssuer + "/", "empty": "", "null": nil,
		"a list":          []string{doorIssuer},
		"of another case": "https://LOGIN.alpha.test", "of http": "http://login.alpha.test", "a wildcard": "*",
	} {
		add("iss "+name, ReasonIssuer, func(j *jwt) { j.claims["iss"] = iss })
	}

	add("no iss", ReasonIssuer, func(j *jwt) { delete(j.claims, "iss") })

	for name, sub := range map[string]any{"empty": "", "null": nil, "a number": 1, "with a control character": "ada\n",
		"too long": strings.Repeat("x", 2100)} {
		add("sub "+name, ReasonSubject, func(j *jwt) { j.claims["sub"] = sub })
	}

	add("no sub", ReasonSubject, func(j *jwt) { delete(j.claims, "sub") })

	for name, aud := range map[string]any{
		"of another": "https://evil.example", "a wildcard": "*", "a wildcard beside": []string{doorURL, "*"},
		"a wildcard within": "https://*.alpha.test",
		"a prefix":          "https://ad.alpha", "longer": doorURL + ".evil.example", "an empty list": []string{},
		"null":     nil,
		"a number": 1,
	} {
		add("aud "+name, ReasonAudience, func(j *jwt) { j.claims["aud"] = aud })
	}

	add("no aud", ReasonAudience, func(j *jwt) { delete(j.claims, "aud") })

	sum := sha256.Sum256(d.elsewhere.Certificates[0].Raw)
	for name, cnf := range map[string]any{
		"of another certificate": map[string]any{"x5t#S256": directory.B64.EncodeToString(sum[:])},
		"of a key":               map[string]any{"jkt": "x"},
		"empty":                  map[string]any{}, "null": nil, "a string": "x",
		"two, one of which holds": map[string]any{
			"x5t#S256": d.access().claims["cnf"].(map[string]any)["x5t#S256"], "jkt": "x",
		},
		"a number": map[string]any{"x5t#S256": 1}, "an empty hash": map[string]any{"x5t#S256": ""},
	} {
		add("cnf "+name, ReasonBinding, func(j *jwt) { j.claims["cnf"] = cnf })
	}

	add("bound to nothing", ReasonBinding, func(j *jwt) { delete(j.claims, "cnf") })

	return append(list, hostile{"access token: shown without its certificate", Shown{Bearer: d.access().text(t)},
		ReasonBinding},
		hostile{"access token: shown on a connection without one",
			Shown{TLS: &tls.ConnectionState{HandshakeComplete: true}, Bearer: d.access().text(t)}, ReasonBinding},
		hostile{"access token: shown with another certificate",
			Shown{TLS: shownBy(d.elsewhere), Bearer: d.access().text(t)}, ReasonBinding})
}

func (d *door) hostileJWTSVIDs(t testing.TB) (list []hostile) {
	add := func(name string, want Reason, change func(*jwt)) {
		j := d.jwtSVID()
		change(j)
		list = append(list, hostile{"jwt-svid: " + name, Shown{Bearer: j.text(t)}, want})
	}
	for _, sub := range []string{
		"", "ada", "spiffe://alpha.test", "spiffe://alpha.test/", "SPIFFE://alpha.test/agent/ada",
		"spiffe://Alpha.test/agent/ada", "spiffe://alpha.test/agent/ada/",
		"spiffe://alpha.test/agent/%61da", "spiffe://alpha.test:443/agent/ada", "wimse://alpha.test/agent/ada",
		"oauth:" + doorIssuer + "#ada", "https://alpha.test/agent/ada", "spiffe://alpha.test/roster/node/1",
	} {
		add("sub "+sub, ReasonSubject, func(j *jwt) { j.claims["sub"] = sub })
	}

	add("sub of another domain", ReasonIssuer, func(j *jwt) { j.claims["sub"] = "spiffe://beta.test/agent/ada" })

	for name, aud := range map[string]any{"of another": []string{"https://evil.example"}, "a wildcard": []string{"*"},
		"an empty list": []string{}, "null": nil} {
		add("aud "+name, ReasonAudience, func(j *jwt) { j.claims["aud"] = aud })
	}

	add("no aud", ReasonAudience, func(j *jwt) { delete(j.claims, "aud") })
	add("too long", ReasonLifetime, func(j *jwt) { j.claims["exp"] = time.Now().Add(2 * maxJWTSVIDLife).Unix() })

	return list
}

// combined are honest tokens in requests that are not.
func (d *door) combined(t testing.TB) []hostile {
	wit := d.wit(t).text(t)
	proof, bearer := d.wpt(wit).text(t), d.jwtSVID().text(t)

	return []hostile{
		{"a token without its proof", Shown{WIT: wit, Method: "POST", Path: "/ad/r"}, ReasonNoProof},
		{"a proof without its token", Shown{Proof: proof, Method: "POST", Path: "/ad/r"}, ReasonNoProof},
		{"a token as its own proof", Shown{WIT: wit, Proof: wit, Method: "POST", Path: "/ad/r"}, ReasonType},
		{"a token as a bearer token", Shown{Bearer: wit}, ReasonType},
		{"a proof as a bearer token", Shown{Bearer: proof}, ReasonType},
		{"a token and a bearer token", Shown{WIT: wit, Bearer: bearer, Method: "POST", Path: "/ad/r"}, ReasonAmbiguous},
		{"a proof and a bearer token", Shown{WIT: wit, Proof: proof, Bearer: bearer, Method: "POST", Path: "/ad/r"},
			ReasonAmbiguous},
		{"a workload with another's certificate",
			Shown{TLS: shownBy(d.svid), WIT: wit, Proof: proof, Method: "POST", Path: "/ad/r"}, ReasonAmbiguous},
		{"a JWT-SVID with another's certificate", Shown{TLS: shownBy(d.elsewhere), Bearer: bearer}, ReasonAmbiguous},
		{"a proof for another route", Shown{WIT: wit, Proof: proof, Path: "/ad/r/x"}, ReasonAudience},
	}
}

func (d *door) corpus(t testing.TB) (list []hostile) {
	mutations := d.mutations(t)
	for _, f := range d.families(t) {
		for _, name := range slices.Sorted(maps.Keys(mutations)) {
			if slices.Contains(f.without, name) {
				continue
			}

			m := mutations[name]

			want, ok := f.instead[name]
			if !ok {
				want = m.want
			}

			j := f.honest().clone()
			m.change(j)
			list = append(list, hostile{f.name + ": " + name, f.show(j.text(t)), want})
		}

		for name, text := range misshapen(t, f.honest().text(t)) {
			want := ReasonForm
			if strings.HasPrefix(name, "!") {
				want = ReasonSignature
			}

			list = append(list, hostile{f.name + ": " + name, f.show(text), want})
		}
	}

	return append(list, d.particular(t)...)
}

// Requirement: TRUST-005, TRUST-006, TRUST-007, TRUST-011, AD-071
func TestHostileTokensAreRefused(t *testing.T) {
	d := newDoor(t, nil)
	for _, f := range d.families(t) {
		if _, err := d.Verify(f.show(f.honest().text(t)), time.Now()); err != nil {
			t.Fatalf("an honest %s is refused: %v", f.name, err)
		}
	}

	corpus, counts := d.corpus(t), map[Reason]int{}
	for _, h := range corpus {
		v, err := d.Verify(h.shown, time.Now())
		if err == nil {
			t.Errorf("%s: taken for %s", h.name, v.Identity)
			continue
		}

		reason := Reason(ReasonOf(err))

		counts[reason]++
		if reason != h.want {
			t.Errorf("%s: refused for %s, want %s", h.name, reason, h.want)
		}

		for _, secret := range []string{h.shown.WIT, h.shown.Proof, h.shown.Bearer} {
			if len(secret) > 20 && strings.Contains(err.Error()+Detail(err), secret[:20]) {
				t.Errorf("%s: the refusal has the token: %v", h.name, err)
			}
		}

		if detail := Detail(err); detail == "" || detail == Detail(errors.New("internal")) {
			t.Errorf("%s: nobody is told why", h.name)
		}
	}

	if len(corpus) < 200 {
		t.Errorf("the corpus has %d tokens, want at least 200", len(corpus))
	}

	t.Logf("%d hostile requests, refused by reason: %v", len(corpus), counts)
}
