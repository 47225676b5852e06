package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/limit/certs"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/compact"
)

// maxToken bounds a token in bytes: the header fields of a request have 16 KiB
// together.
const maxToken = 8 << 10

// A Reason is a one-word reason for the refusal of a credential; it is the label of a
// counter.
type Reason = trust.Reason

// Reasons that certificates have too.
const (
	ReasonExpired     = trust.ReasonExpired
	ReasonNotYetValid = trust.ReasonNotYetValid
)

// Reasons why a token was refused.
const (
	// no compact JWS in canonical form, or its header or claims are no strict JSON object
	ReasonForm       Reason = "form"
	ReasonSize       Reason = "size"       // larger than a token may be
	ReasonHeader     Reason = "header"     // a header parameter that would let the token choose its key or its meaning
	ReasonType       Reason = "type"       // typ is of another kind of token
	ReasonAlgorithm  Reason = "algorithm"  // not one that its issuer may use
	ReasonKey        Reason = "key"        // no key of that id is pinned, or it is for another algorithm
	ReasonSignature  Reason = "signature"  // does not hold
	ReasonClaims     Reason = "claims"     // one is missing, or not of its type
	ReasonIssuer     Reason = "issuer"     // of no configured issuer
	ReasonSubject    Reason = "subject"    // no identity in canonical form, or not one that its issuer may name
	ReasonAudience   Reason = "audience"   // for another audience, or for any
	ReasonLifetime   Reason = "lifetime"   // ends too far ahead
	ReasonBinding    Reason = "binding"    // bound to another certificate or token, or to none though required
	ReasonNoProof    Reason = "no_proof"   // a token of a workload without its proof, or a proof without its token
	ReasonAmbiguous  Reason = "ambiguous"  // two credentials that disagree
	ReasonNotTaken   Reason = "not_taken"  // credentials of a kind that is not taken here
	ReasonUnlimited  Reason = "unlimited"  // it has no end
	ReasonTokenBound Reason = "other_hash" // the proof speaks of further tokens
	ReasonMethod     Reason = "method"     // the proof is for a request of another method
)

// algorithms are the ones that callers' tokens may be signed with, as configuration
// allows each issuer: asymmetric ones alone.
var algorithms = []jose.SignatureAlgorithm{
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384,
	jose.PS512,
}

// A token is a JWT of a caller whose form holds. Its signature has not been
// looked at.
type token struct {
	text          string
	alg, typ, kid string // the last two may be empty
	claims        claims
}

// steering are the header parameters by which a token would choose the key that verifies
// it, or its meaning. No other parameter is understood, and those are ignored as RFC
// 7515, 4 says.
var steering = []string{"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty"}

// parseToken splits a JWT in compact serialization: three parts in canonical base64url,
// header and claims strict JSON objects. It refuses forms that the library accepts:
// unprotected headers, line breaks, spare bits, duplicate claims. The error is a
// *refusal that discloses nothing of the token.
func parseToken(text string) (*token, error) {
	if len(text) > maxToken {
		return nil, refuseToken(ReasonSize)
	}

	// A fourth part is enough to refuse a text, however many dots follow.
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return nil, refuseToken(ReasonForm)
	}

	var members [2][]strictjson.Member
	for i, part := range parts {
		// The signature is decoded too: spare bits would give one token several texts.
		raw, err := compact.DecodeBase64(part)
		if err != nil {
			return nil, refuseToken(ReasonForm)
		}

		if i == 2 {
			break // the signature
		}

		if members[i], err = directory.ParseObject(raw); err != nil {
			return nil, refuseToken(ReasonForm)
		}
	}

	t := &token{text: text, claims: members[1]}

	header := claims(members[0])
	if slices.ContainsFunc(steering, header.has) {
		return nil, refuseToken(ReasonHeader)
	}

	for name, into := range map[string]*string{"alg": &t.alg, "typ": &t.typ, "kid": &t.kid} {
		var ok bool
		if *into, ok = header.text(name); !ok && (name == "alg" || header.has(name)) {
			return nil, refuseToken(ReasonHeader)
		}
	}

	// The prefix may be left out, and media types are compared without case (RFC 7515, 4.1.9).
	t.typ = strings.TrimPrefix(strings.ToLower(t.typ), "application/")

	return t, nil
}

// ClaimsOf returns the identity that a token names and when it ends, for its holder: nothing is verified. The time is
// zero if the token has none.
func ClaimsOf(text string) (identity string, until time.Time, err error) {
	t, err := parseToken(text)
	if err != nil {
		return "", time.Time{}, err
	}

	sub, ok := t.claims.text("sub")
	if !ok {
		return "", time.Time{}, errors.New("the token has no sub")
	}

	if t.typ == typeAccess {
		iss, _ := t.claims.text("iss")
		sub = oauthIdentity(iss, sub)
	}

	until, _ = t.claims.time("exp")

	return sub, until, nil
}

// verify checks the signature by a key of the set, with an algorithm that the
// token's issuer may use.
func (t *token) verify(keys map[string]crypto.PublicKey, allowed []jose.SignatureAlgorithm) error {
	if !slices.Contains(allowed, jose.SignatureAlgorithm(t.alg)) {
		return refuseToken(ReasonAlgorithm)
	}

	key, ok := keys[t.kid]
	if !ok || t.kid == "" {
		return refuseToken(ReasonKey)
	}

	return t.verifyBy(key)
}

// verifyBy checks the signature by one key, which must be one of the token's algorithm.
// So an RSA key is never used as an HMAC key.
func (t *token) verifyBy(key crypto.PublicKey) error {
	alg := jose.SignatureAlgorithm(t.alg)
	if !slices.Contains(algorithms, alg) {
		return refuseToken(ReasonAlgorithm)
	}

	if !fits(alg, key) {
		return refuseToken(ReasonKey)
	}

	if compact.VerifySignature(t.text, alg, key) != nil {
		return refuseToken(ReasonSignature)
	}

	return nil
}

// fits reports whether a key is one that signs with alg.
func fits(alg jose.SignatureAlgorithm, key crypto.PublicKey) bool {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	case *ecdsa.PublicKey:
		return map[jose.SignatureAlgorithm]int{jose.ES256: 256, jose.ES384: 384,
			jose.ES512: 521}[alg] == key.Curve.Params().BitSize
	case *rsa.PublicKey:
		return key.N.BitLen() >= certs.MinRSA && certs.IsAffordable(key) &&
			(strings.HasPrefix(string(alg), "RS") || strings.HasPrefix(string(alg), "PS"))
	}

	return false
}

// within checks nbf, iat and exp, which must be there, and returns exp. A signer's
// clock may be a minute ahead of ours.
func (t *token) within(now time.Time) (exp time.Time, err error) {
	for _, name := range []string{"nbf", "iat"} {
		if at, ok := t.claims.time(name); !ok && t.claims.has(name) {
			return exp, refuseToken(ReasonClaims)
		} else if at.After(now.Add(trust.MaxClockSkew)) {
			return exp, refuseToken(ReasonNotYetValid)
		}
	}

	if !t.claims.has("exp") {
		return exp, refuseToken(ReasonUnlimited)
	}

	exp, ok := t.claims.time("exp")
	switch {
	case !ok:
		return exp, refuseToken(ReasonClaims)
	case !now.Before(exp):
		return exp, refuseToken(ReasonExpired)
	}

	return exp, nil
}

// audience returns aud, one or several.
func (t *token) audience() ([]string, error) {
	raw := compact.Member(t.claims, "aud")

	var list []string
	if one, ok := t.claims.text("aud"); ok {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		return nil, refuseToken(ReasonAudience)
	}

	return list, nil
}

// meant checks that the token is for one of those audiences. A token for any audience is
// refused (AD-071).
func (t *token) meant(audiences []string) error {
	list, err := t.audience()
	if err != nil {
		return err
	}

	if slices.ContainsFunc(list, func(a string) bool { return strings.Contains(a, "*") }) ||
		!slices.ContainsFunc(list, func(a string) bool { return slices.Contains(audiences, a) }) {
		return refuseToken(ReasonAudience)
	}

	return nil
}

// claims are the members of a header or of a token's claims, no name twice.
type claims []strictjson.Member

func (c claims) has(name string) bool { return compact.Member(c, name) != nil }

// text returns a member that is a string.
func (c claims) text(name string) (string, bool) {
	raw := compact.Member(c, name)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}

	var s string
	err := json.Unmarshal(raw, &s)

	return s, err == nil
}

// time returns a member that is a NumericDate (RFC 7519, 2), from 1970 to the year
// 9999.
func (c claims) time(name string) (time.Time, bool) {
	const year9999 = 253402300799

	var seconds float64

	raw := compact.Member(c, name)
	if len(raw) == 0 || raw[0] < '0' || raw[0] > '9' || json.Unmarshal(raw, &seconds) != nil || seconds > year9999 {
		return time.Time{}, false
	}

	return time.Unix(int64(seconds), 0), true
}

// sayings are the texts for a refused caller. They disclose nothing of the token.
var sayings = map[Reason]string{
	ReasonForm:      "it is not a JWT in compact serialization, strictly encoded",
	ReasonSize:      "it is larger than 8 KiB",
	ReasonHeader:    "its header has a parameter that is not taken here, or alg, typ or kid is no string",
	ReasonType:      "its typ is not that of such a token",
	ReasonAlgorithm: "its algorithm is not one that its issuer may use",
	ReasonKey:       "no key of its kid and algorithm is known of its issuer",
	ReasonSignature: "its signature is invalid",
	ReasonClaims:    "a claim is missing, or not of its type",
	ReasonIssuer:    "its issuer is not one that is known here",
	ReasonSubject:   "its subject is not an identity that its issuer may name",
	ReasonAudience:  "it is not for this directory",
	ReasonLifetime:  "it ends too far in the future",
	ReasonBinding:   "it is bound to another certificate or token, or to none",
	ReasonNoProof: "a workload identity token and its proof come together: Workload-Identity-Token and " +
		"Authorization: WPT",
	ReasonAmbiguous:   "the request came with credentials that disagree",
	ReasonNotTaken:    "credentials of this kind are not taken here",
	ReasonUnlimited:   "it has no exp",
	ReasonTokenBound:  "it speaks of further tokens (tth, oth), which are not taken here",
	ReasonMethod:      "the proof is for a request of another method (htm)",
	ReasonExpired:     "it has expired",
	ReasonNotYetValid: "it is not valid yet",
}

// A refusal is why a credential is refused. Its text has nothing of the credential, so it
// may be sent to the caller.
type refusal struct {
	reason Reason
	text   string
}

func (r *refusal) Error() string { return string(r.reason) + ": " + r.text }

func refuseToken(r Reason) error { return &refusal{r, sayings[r]} }
