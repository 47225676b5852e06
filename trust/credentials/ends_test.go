package credentials

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Each credential is good until its end and not after it, that of a connection as well, which has
// lasted since before.
//
// Requirement: TRUST-001, TRUST-006
func TestEachCredentialEnds(t *testing.T) {
	d := newDoor(t, func(cfg *Config) { cfg.OAuth[0].Plain, cfg.OAuth[0].Algorithms = PlainAlways, nil })
	certificate := shownBy(d.svid)

	short := d.wit(t)
	short.claims["exp"] = time.Now().Add(20 * time.Second).Unix()
	wit, shortText := d.wit(t).text(t), short.text(t)
	proof := d.wpt(wit)

	plain := d.access()
	delete(plain.claims, "cnf")

	bound, svid := d.access(), d.jwtSVID()
	bound.claims["exp"] = time.Now().Add(time.Minute).Unix()

	late := d.access()
	late.claims["exp"] = time.Now().Add(5 * time.Hour).Unix()

	at := func(j *jwt) time.Time { return time.Unix(j.claims["exp"].(int64), 0) }
	notAfter := d.svid.Certificates[0].NotAfter

	for name, x := range map[string]struct {
		shown Shown
		end   time.Time
	}{
		"a certificate":               {Shown{TLS: certificate}, notAfter},
		"the proof of a workload":     {d.workloadShown(t, wit, proof), at(proof)},
		"the token of a workload":     {d.workloadShown(t, shortText, d.wpt(shortText)), at(short)},
		"a bound token's certificate": {Shown{TLS: certificate, Bearer: late.text(t)}, notAfter},
		"a bound token":               {Shown{TLS: certificate, Bearer: bound.text(t)}, at(bound)},
		"a token":                     {Shown{Bearer: plain.text(t)}, at(plain)},
		"a JWT-SVID":                  {Shown{Bearer: svid.text(t)}, at(svid)},
		"a JWT-SVID beside":           {Shown{TLS: certificate, Bearer: svid.text(t)}, at(svid)},
	} {
		before := x.end.Add(-time.Second)

		v, err := d.Verify(x.shown, before)
		if err != nil || v.Identity.IsZero() || !v.Until.After(before) {
			t.Errorf("%s a second before its end: %+v, %v", name, v, err)
		}

		// Of a token nothing says when its life began.
		life := v.Until.Sub(before)
		if v.Method == MethodSVID {
			life = notAfter.Sub(d.svid.Certificates[0].NotBefore)
		}

		if v.Life != life {
			t.Errorf("%s has a life of %s, want %s", name, v.Life, life)
		}

		for _, now := range []time.Time{x.end, x.end.Add(time.Hour)} {
			v, err := d.Verify(x.shown, now)
			if err == nil || ReasonOf(err) != string(ReasonExpired) || v != (Verified{}) {
				t.Errorf("%s at %s, of which the end is %s: %+v, %v", name, now, x.end, v, err)
			}
		}
	}

	if v, err := d.Verify(Shown{TLS: &tls.ConnectionState{HandshakeComplete: true}}, time.Now()); err != nil ||
		v != (Verified{}) {
		t.Errorf("a connection without a certificate: %+v, %v", v, err)
	}
}

// A key set is taken as far as its keys sign, and as a whole or not at all.
//
// Requirement: TRUST-006
func TestWhichKeysOfASetAreTaken(t *testing.T) {
	jwk := func(change func(map[string]any)) string {
		key := publicJWK(t, ecKey(t).Public(), "ES256")
		key["kid"] = "a"
		change(key)

		text, err := json.Marshal(key)
		must(t, err)

		return string(text)
	}
	with := func(name string, value any) string { return jwk(func(key map[string]any) { key[name] = value }) }
	good := with("kid", "good")

	private, err := jose.JSONWebKey{Key: ecKey(t), KeyID: "a"}.MarshalJSON()
	must(t, err)

	for name, x := range map[string]struct {
		keys []string
		want string // the ids of the keys, or why the set is refused
	}{
		"without a use":   {[]string{good, with("alg", "ES256")}, "a good"},
		"to sign":         {[]string{good, with("use", "sig")}, "a good"},
		"of workloads":    {[]string{good, with("use", "wit-svid")}, "a good"},
		"of JWT-SVIDs":    {[]string{good, with("use", "jwt-svid")}, "a good"},
		"to encrypt":      {[]string{good, with("use", "enc")}, "good"},
		"of certificates": {[]string{good, with("use", "x509-svid")}, "good"},
		"without an id":   {[]string{good, with("kid", "")}, "good"},
		"of another type": {[]string{good, with("kty", "XYZ")}, "good"},
		"none that signs": {[]string{with("use", "enc")}, "no signature key"},
		"none":            {nil, "no signature key"},
		"symmetric":       {[]string{good, `{"kty":"oct","k":"AAAA","kid":"a"}`}, "key 1 is symmetric"},
		"private":         {[]string{good, string(private)}, "not a public key"},
		"off its curve":   {[]string{good, with("x", "AAAA")}, "key 1"},
		"no exponent":     {[]string{good, `{"kty":"RSA","kid":"a","n":"wQ","e":"AA"}`}, "key 1"},
		"no object":       {[]string{good, `"key"`}, "key 1"},
		"twice":           {[]string{good, good}, `two keys have the id "good"`},
		"a member twice":  {[]string{`{"kid":"a","kid":"b"}`}, "occurs twice"},
		"more than a bound": {strings.Split(strings.Repeat(good+"\n", 101)[:101*(len(good)+1)-1], "\n"),
			"over 100 keys"},
	} {
		keys, err := parseKeys([]byte(`{"keys":[` + strings.Join(x.keys, ",") + `]}`))
		if err != nil {
			if keys != nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %v, want %s", name, err, x.want)
			}

			continue
		}

		got := ""
		for _, kid := range []string{"a", "good"} {
			if keys[kid] != nil {
				got += " " + kid
			}
		}

		if strings.TrimSpace(got) != x.want || len(keys) != len(strings.Fields(x.want)) {
			t.Errorf("%s: %v, want %s", name, keys, x.want)
		}
	}
}

// A token is verified by the key that it names, and by its algorithm, which its issuer may use.
//
// Requirement: TRUST-006
func TestATokenNamesItsKey(t *testing.T) {
	d := newDoor(t, nil)
	costly := &rsa.PublicKey{N: new(big.Int).Lsh(d.rsa.N, 1<<14), E: d.rsa.E}
	keys := map[string]crypto.PublicKey{
		"": d.issuer.Public(), "k1": d.issuer.Public(), "r1": d.rsa.Public(), "costly": costly}

	for _, x := range []struct {
		kid, alg string
		key      any
		allowed  []jose.SignatureAlgorithm
		want     Reason
	}{
		{"k1", "ES256", d.issuer, defaultAlgorithms, ""},
		{"r1", "RS256", d.rsa, defaultAlgorithms, ""},
		{"", "ES256", d.issuer, defaultAlgorithms, ReasonKey},
		{"k2", "ES256", d.issuer, defaultAlgorithms, ReasonKey},
		{"r1", "ES256", d.issuer, defaultAlgorithms, ReasonKey},
		{"costly", "RS256", d.rsa, defaultAlgorithms, ReasonKey},
		{"k1", "RS256", d.rsa, defaultAlgorithms, ReasonKey},
		{"k1", "ES256", d.other, defaultAlgorithms, ReasonSignature},
		{"k1", "ES256", d.issuer, []jose.SignatureAlgorithm{jose.RS256}, ReasonAlgorithm},
		{"k1", "HS256", []byte("secret"), []jose.SignatureAlgorithm{jose.HS256}, ReasonAlgorithm},
		{"k1", "none", d.issuer, []jose.SignatureAlgorithm{"none"}, ReasonAlgorithm},
	} {
		j := d.jwtSVID()
		j.header["alg"], j.key = x.alg, x.key

		if j.header["kid"] = x.kid; x.kid == "" {
			delete(j.header, "kid")
		}

		token, err := parseToken(j.text(t))
		must(t, err)

		err = token.verify(keys, x.allowed)
		if got := ReasonOf(err); (err != nil) != (x.want != "") || err != nil && got != string(x.want) {
			t.Errorf("%q by %s: %v, want %s", x.kid, x.alg, err, x.want)
		}
	}
}
