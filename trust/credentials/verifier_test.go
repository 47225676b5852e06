package credentials

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/policy"
)

// A door is a judge of callers with issuers of every kind, and all that they need
// to make tokens.
type door struct {
	*Verifier
	issuer, workload, other *ecdsa.PrivateKey
	rsa                     *rsa.PrivateKey
	svid, elsewhere         *x509svid.SVID // of /agent/ada and of /agent/eve
}

const (
	doorURL    = "https://ad.alpha.test"
	doorIssuer = "https://login.alpha.test"
)

func newDoor(t testing.TB, change func(*Config)) *door {
	t.Helper()
	d := &door{issuer: ecKey(t), workload: ecKey(t), other: ecKey(t)}

	var err error
	d.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	ca, err := trust.NewCA(alpha, time.Now())
	must(t, err)
	d.svid, err = ca.Issue("/agent/ada", time.Hour, time.Now())
	must(t, err)
	d.elsewhere, err = ca.Issue("/agent/eve", time.Hour, time.Now())
	must(t, err)

	bundle := spiffebundle.FromX509Authorities(alpha, ca.Bundle().X509Authorities())
	must(t, bundle.AddJWTAuthority("k1", d.issuer.Public()))
	must(t, bundle.AddWITAuthority("k1", d.issuer.Public()))
	text, err := bundle.Marshal()
	must(t, err)
	bundles := trust.NewBundles()
	must(t, bundles.Set(alpha, text))

	keys, err := OpenKeys(d.jwks(t), nil)
	must(t, err)

	cfg := Config{
		Addresses: []string{doorURL}, Audiences: []string{doorURL}, WITSVID: true, JWTSVID: true,
		WIMSE: []WIMSEIssuer{{Domain: "wimse://alpha.test", Issuer: doorIssuer, Keys: keys,
			Algorithms: []string{"ES256"}}},
		OAuth: []OAuthIssuer{{Issuer: doorIssuer, Keys: keys, Algorithms: []string{"ES256"}, Plain: PlainNever}},
	}
	if change != nil {
		change(&cfg)
	}

	d.Verifier, err = New(cfg, bundles)
	must(t, err)

	return d
}

// jwks writes the issuer's keys to a file.
func (d *door) jwks(t testing.TB) string {
	t.Helper()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: d.issuer.Public(), KeyID: "k1", Use: "sig"}, {Key: d.rsa.Public(), KeyID: "r1", Use: "sig"},
	}}
	text, err := json.Marshal(set)
	must(t, err)
	file := filepath.Join(t.TempDir(), "jwks.json")
	must(t, os.WriteFile(file, text, 0o600))

	return file
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	return key
}

// shownBy is the state of a connection with that client certificate.
func shownBy(svid *x509svid.SVID) *tls.ConnectionState {
	if svid == nil {
		return nil
	}

	return &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: svid.Certificates}
}

// A jwt is a token in the making. Header and claims are encoded with their names
// sorted, unless raw text is given.
type jwt struct {
	header, claims       map[string]any
	rawHeader, rawClaims string
	key                  any // *ecdsa, *rsa or ed25519 private key, or []byte for HMAC
}

func (j *jwt) clone() *jwt {
	c := *j
	c.header, c.claims = maps.Clone(j.header), maps.Clone(j.claims)

	return &c
}

func (j *jwt) text(t testing.TB) string {
	t.Helper()
	encode := func(m map[string]any, raw string) string {
		if raw == "" {
			b, err := json.Marshal(m)
			must(t, err)
			raw = string(b)
		}

		return directory.B64.EncodeToString([]byte(raw))
	}
	input := encode(j.header, j.rawHeader) + "." + encode(j.claims, j.rawClaims)

	return input + "." + directory.B64.EncodeToString(rawSignature(t, j.key, input))
}

// rawSignature signs as the key does, whatever the header says.
func rawSignature(t testing.TB, key any, input string) []byte {
	t.Helper()

	sum := sha256.Sum256([]byte(input))
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		must(t, err)
		out := make([]byte, 64)
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])

		return out
	case *rsa.PrivateKey:
		out, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		must(t, err)

		return out
	case ed25519.PrivateKey:
		return ed25519.Sign(key, []byte(input))
	case []byte:
		h := hmac.New(sha256.New, key)
		h.Write([]byte(input))

		return h.Sum(nil)
	}

	t.Fatalf("no key: %T", key)

	return nil
}

func publicJWK(t testing.TB, key crypto.PublicKey, alg string) map[string]any {
	t.Helper()
	text, err := (&jose.JSONWebKey{Key: key, Algorithm: alg}).MarshalJSON()
	must(t, err)

	var m map[string]any
	must(t, json.Unmarshal(text, &m))

	return m
}

// honest tokens of each kind. A WIT is of wimse://alpha.test unless said.
func (d *door) wit(t testing.TB) *jwt {
	return &jwt{
		header: map[string]any{"alg": "ES256", "kid": "k1", "typ": "wit+jwt"},
		claims: map[string]any{
			"iss": doorIssuer, "sub": "wimse://alpha.test/agent/ada", "exp": time.Now().Add(time.Hour).Unix(),
			"cnf": map[string]any{"jwk": publicJWK(t, d.workload.Public(), "ES256")},
		},
		key: d.issuer,
	}
}

func (d *door) wpt(wit string) *jwt {
	return &jwt{
		header: map[string]any{"alg": "ES256", "typ": "wpt+jwt"},
		claims: map[string]any{
			"aud": doorURL + "/ad/r", "exp": time.Now().Add(30 * time.Second).Unix(), "jti": rand.Text(),
			"wth": tokenHash(wit),
		},
		key: d.workload,
	}
}

func (d *door) access() *jwt {
	sum := sha256.Sum256(d.svid.Certificates[0].Raw)

	return &jwt{
		header: map[string]any{"alg": "ES256", "kid": "k1", "typ": "at+jwt"},
		claims: map[string]any{
			"iss": doorIssuer, "sub": "ada", "aud": doorURL, "exp": time.Now().Add(time.Hour).Unix(),
			"iat": time.Now().Unix(),
			"jti": rand.Text(), "client_id": "ada-client",
			"cnf": map[string]any{"x5t#S256": directory.B64.EncodeToString(sum[:])},
		},
		key: d.issuer,
	}
}

func (d *door) jwtSVID() *jwt {
	return &jwt{
		header: map[string]any{"alg": "ES256", "kid": "k1", "typ": "JWT"},
		claims: map[string]any{"sub": "spiffe://alpha.test/agent/ada", "aud": []string{doorURL},
			"exp": time.Now().Add(5 * time.Minute).Unix()},
		key: d.issuer,
	}
}

// workloadShown is an honest request of a workload, changed.
func (d *door) workloadShown(t testing.TB, wit string, proof *jwt) Shown {
	return Shown{WIT: wit, Proof: proof.text(t), Method: "POST", Path: "/ad/r"}
}

// Requirement: TRUST-005, AD-038, AD-039
func TestAWorkloadShowsItselfByTokenAndProof(t *testing.T) {
	d := newDoor(t, func(cfg *Config) {
		cfg.WIMSE = append(cfg.WIMSE, WIMSEIssuer{Domain: "wimse://gamma.test", Keys: cfg.WIMSE[0].Keys})
	})
	for subject, change := range map[string]func(*jwt){
		"wimse://alpha.test/agent/ada": func(*jwt) {},
		"wimse://gamma.test/agent/ada": func(j *jwt) { j.claims["sub"] = "wimse://gamma.test/agent/ada" },
		"spiffe://alpha.test/agent/ada": func(j *jwt) {
			j.claims["sub"] = "spiffe://alpha.test/agent/ada"
			delete(j.claims, "iss")
		},
	} {
		j := d.wit(t)
		change(j)
		wit := j.text(t)
		proof := d.wpt(wit)

		v, err := d.Verify(d.workloadShown(t, wit, proof), time.Now())
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}

		if v.Identity.String() != subject || v.Method != MethodWPT || v.ReadOnly || v.Proof.IsZero() ||
			v.ProofUntil <= proof.claims["exp"].(int64) {
			t.Errorf("%s: verified as %+v", subject, v)
		}

		again, err := d.Verify(d.workloadShown(t, wit, proof), time.Now())
		if err != nil || again.Proof != v.Proof {
			t.Errorf("the same proof has another name: %v", err)
		}

		proof.claims["jti"] = rand.Text()
		if next, err := d.Verify(d.workloadShown(t, wit, proof), time.Now()); err != nil || next.Proof == v.Proof {
			t.Errorf("another proof has the same name: %v", err)
		}
	}
}

// What our own client makes, by each kind of key, is taken.
//
// Requirement: TRUST-005
func TestOurProofsAreTaken(t *testing.T) {
	d := newDoor(t, nil)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	for alg, key := range map[string]crypto.Signer{"ES256": d.workload, "EdDSA": edwards, "RS256": d.rsa,
		"PS256": d.rsa} {
		j := d.wit(t)
		j.claims["cnf"] = map[string]any{"jwk": publicJWK(t, key.Public(), alg)}
		dir := t.TempDir()
		witFile, keyFile := filepath.Join(dir, "wit"), filepath.Join(dir, "key")
		must(t, os.WriteFile(witFile, []byte(j.text(t)+"\n"), 0o600))
		must(t, os.WriteFile(keyFile, pemKey(t, key), 0o600))
		w, err := OpenWorkload(witFile, keyFile)
		must(t, err)
		wit, proof, err := w.Prove("POST", doorURL+"/ad/r", time.Now())
		must(t, err)

		if _, err := d.Verify(Shown{WIT: wit, Proof: proof, Method: "POST", Path: "/ad/r"}, time.Now()); err != nil {
			t.Errorf("%s: %v", alg, err)
		}

		if _, err := d.Verify(Shown{WIT: wit, Proof: proof, Method: "DELETE", Path: "/ad/r"},
			time.Now()); Reason(ReasonOf(err)) != ReasonMethod {
			t.Errorf("%s: for another method: %v", alg, err)
		}

		must(t, os.WriteFile(keyFile, pemKey(t, d.other), 0o600))

		if _, _, err := w.Prove("POST", doorURL, time.Now()); !errors.Is(err, errOtherKey) {
			t.Errorf("%s: a key that the token doesn't confirm: %v", alg, err)
		}
	}
}

func pemKey(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	_, text, err := (&x509svid.SVID{PrivateKey: key, Certificates: []*x509.Certificate{{}}}).Marshal()
	must(t, err)

	return text
}

// Requirement: TRUST-006, AD-038, AD-071
func TestAccessTokens(t *testing.T) {
	d := newDoor(t, nil)

	v, err := d.Verify(Shown{TLS: shownBy(d.svid), Bearer: d.access().text(t)}, time.Now())
	if err != nil || v.Identity.String() != "oauth:"+doorIssuer+"#ada" || v.Method != MethodOAuth || v.ReadOnly {
		t.Errorf("bound: %+v, %v", v, err)
	}

	// It ends with its certificate, or with itself if that is earlier.
	for _, life := range []time.Duration{time.Minute, 5 * time.Hour} {
		token := d.access()
		token.claims["exp"] = time.Now().Add(life).Unix()

		end := d.svid.Certificates[0].NotAfter
		if life < time.Hour {
			end = time.Unix(token.claims["exp"].(int64), 0)
		}

		v, err := d.Verify(Shown{TLS: shownBy(d.svid), Bearer: token.text(t)}, time.Now())
		if err != nil || !v.Until.Equal(end) {
			t.Errorf("a bound token of %s with a certificate of an hour ends at %s, want %s: %v", life, v.Until, end, err)
		}
	}

	plain := d.access()
	delete(plain.claims, "cnf")

	for _, c := range []struct {
		plain    string
		taken    bool
		readOnly bool
	}{{PlainNever, false, false}, {"", false, false}, {PlainReads, true, true}, {PlainAlways, true, false}} {
		d.cfg.OAuth[0].Plain = c.plain

		v, err := d.Verify(Shown{Bearer: plain.text(t)}, time.Now())
		if (err == nil) != c.taken || v.ReadOnly != c.readOnly {
			t.Errorf("plain %q: %+v, %v", c.plain, v, err)
		}

		if !c.taken && Reason(ReasonOf(err)) != ReasonBinding {
			t.Errorf("plain %q: %v", c.plain, err)
		}
	}
}

// Requirement: TRUST-006, AD-038
func TestJWTSVIDsAreForReads(t *testing.T) {
	d := newDoor(t, nil)
	for _, svid := range []*x509svid.SVID{nil, d.svid} {
		v, err := d.Verify(Shown{TLS: shownBy(svid), Bearer: d.jwtSVID().text(t)}, time.Now())
		if err != nil || v.Identity.String() != "spiffe://alpha.test/agent/ada" || v.ReadOnly != (svid == nil) {
			t.Errorf("with a certificate %t: %+v, %v", svid != nil, v, err)
		}
	}

	off := newDoor(t, func(cfg *Config) { cfg.JWTSVID, cfg.WITSVID = false, false })
	if _, err := off.Verify(Shown{Bearer: off.jwtSVID().text(t)}, time.Now()); Reason(ReasonOf(err)) != ReasonNotTaken {
		t.Errorf("where they are off: %v", err)
	}

	wit := off.wit(t)
	wit.claims["sub"] = "spiffe://alpha.test/agent/ada"
	shown := off.workloadShown(t, wit.text(t), off.wpt(wit.text(t)))

	if _, err := off.Verify(shown, time.Now()); Reason(ReasonOf(err)) != ReasonIssuer {
		t.Errorf("a WIT-SVID where they are off: %v", err)
	}
}

// An issuer that configuration makes the domain's own has its subjects registered
// by the shipped policy, and the same text of another scheme not.
//
// Requirement: TRUST-007, AD-039
func TestOwnIssuersAreAdopted(t *testing.T) {
	p, err := policy.New("shipped", alpha)
	must(t, err)
	d := newDoor(t, func(cfg *Config) { cfg.WIMSE[0].Own, cfg.OAuth[0].Own = true, true })
	p.Adopt(d.OwnPrefixes())

	for uri, want := range map[string]bool{
		"wimse://alpha.test/agent/ada": true, "oauth:" + doorIssuer + "#ada": true,
		"spiffe://alpha.test/agent/ada":     true,
		"wimse://alpha.test.evil/agent/ada": false, "oauth:" + doorIssuer + ".evil#ada": false,
		"wimse://beta.test/agent/ada": false,
	} {
		id, err := directory.ParseIdentity(uri)
		must(t, err)

		if got := p.Register(id, "one", nil, directory.Visibility{}).Allow; got != want {
			t.Errorf("%s may register: %t", uri, got)
		}

		if p.Operate(id, "raft.read").Allow {
			t.Errorf("%s operates", uri)
		}
	}
}

// Requirement: TRUST-006
func TestIssuersThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"symmetric":  func(c *Config) { c.OAuth[0].Algorithms = []string{"HS256"} },
		"none":       func(c *Config) { c.WIMSE[0].Algorithms = []string{"none"} },
		"no scheme":  func(c *Config) { c.WIMSE[0].Domain = "alpha.test" },
		"with path":  func(c *Config) { c.WIMSE[0].Domain = "wimse://alpha.test/x" },
		"upper case": func(c *Config) { c.WIMSE[0].Domain = "wimse://Alpha.test" },
	} {
		cfg := Config{WIMSE: []WIMSEIssuer{{Domain: "wimse://alpha.test"}}, OAuth: []OAuthIssuer{{Issuer: doorIssuer}}}
		change(&cfg)

		if _, err := New(cfg, trust.NewBundles()); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Who was believed when a connection was made is believed no longer once their
// domain's bundle does not certify them any more.
//
// Requirement: TRUST-002, TRUST-003
func TestConnectionsAreJudgedByTheBundlesOfNow(t *testing.T) {
	d := newDoor(t, nil)
	want := func(what string, holds bool) {
		t.Helper()

		if got := d.Holds(shownBy(d.svid), time.Now()); got != holds {
			t.Errorf("%s: it holds: %v", what, got)
		}
	}
	held, err := d.bundles.JWKS(alpha)
	must(t, err)
	want("by the bundle of then", true)
	next, err := trust.NewCA(alpha, time.Now())
	must(t, err)
	must(t, d.bundles.SetX509(alpha, next.Bundle().X509Authorities()))
	want("by a bundle without its CA", false)
	must(t, d.bundles.Set(alpha, held))
	want("by the bundle that has its CA again", true)
	d.bundles.Remove(alpha)
	want("without a bundle", false)

	if d.Holds(nil, time.Now()) {
		t.Error("no certificate holds")
	}
}

// The identity that a token names is read without verifying it, as it would be verified.
func TestTheIdentityThatATokenNames(t *testing.T) {
	d := newDoor(t, nil)
	d.issuer = d.other // no signature holds

	for want, shown := range map[string]Shown{
		"wimse://alpha.test/agent/ada":  {WIT: d.wit(t).text(t)},
		"oauth:" + doorIssuer + "#ada":  {Bearer: d.access().text(t)},
		"spiffe://alpha.test/agent/ada": {Bearer: d.jwtSVID().text(t)},
		"":                              {Bearer: "no token"},
		directory.Identity{}.String():   {},
	} {
		if got := d.Claimed(shown).String(); got != want {
			t.Errorf("the token names %q, want %q", got, want)
		}
	}

	nameless := d.jwtSVID()
	delete(nameless.claims, "sub")

	if _, _, err := ClaimsOf(nameless.text(t)); err == nil {
		t.Error("a token without sub names its holder")
	}
}

// BenchmarkForgedTokens measures tokens that don't hold, of which an address may send 20 a second
// (admission.Limiter), by the issuer's algorithms, and the proof of an insider who chose a large key.
func BenchmarkForgedTokens(b *testing.B) {
	wide, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	must(b, err)

	large, err := rsa.GenerateKey(rand.Reader, 4096)
	must(b, err)

	d := newDoor(b, func(cfg *Config) {
		cfg.OAuth[0].Algorithms = []string{"ES256", "ES512", "PS512"}
		keys := cfg.OAuth[0].Keys.keys
		keys["ES256"], keys["ES512"], keys["PS512"] = ecKey(b).Public(), wide.Public(), large.Public()
	})

	forged := map[string]Shown{}

	for algorithm, size := range map[string]int{"ES256": 64, "ES512": 132, "PS512": 512} {
		token := d.access()
		token.header["alg"], token.header["kid"] = algorithm, algorithm
		text := token.text(b)
		text = text[:strings.LastIndexByte(text, '.')+1]
		forged[algorithm] = Shown{Bearer: text + directory.B64.EncodeToString(bytes.Repeat([]byte{1}, size))}
	}

	token := d.wit(b)
	token.claims["cnf"] = map[string]any{"jwk": publicJWK(b, large.Public(), "PS256")}
	wit := token.text(b)
	proof := d.wpt(wit)
	proof.header["alg"] = "PS256"
	proof.key = large
	forged["proof-PS256"] = Shown{WIT: wit, Proof: proof.text(b), Method: http.MethodGet, Path: "/ad/r"}

	for name, shown := range forged {
		b.Run(name, func(b *testing.B) {
			began := processorTime(b)

			for b.Loop() {
				if _, err := d.Verify(shown, time.Now()); ReasonOf(err) != string(ReasonSignature) {
					b.Fatal(err)
				}
			}

			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))

	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
