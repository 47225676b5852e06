package credentials

import (
	"crypto/sha256"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/compact"
)

// typeAccess is the JOSE type of an OAuth access token (RFC 9068, 2.1).
const typeAccess = "at+jwt"

// jwtSVIDAlgorithms are those of JWT-SVIDs (JWT-SVID, 2.1).
var jwtSVIDAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
}

// maxJWTSVIDLife is how far ahead a JWT-SVID may end. The limit is short because anyone
// who finds a bearer token can use it.
const maxJWTSVIDLife = time.Hour

// How tokens that are bound to no certificate are taken of an OAuth issuer.
const (
	PlainNever  = "never"
	PlainReads  = "reads"
	PlainAlways = "always"
)

// An OAuthIssuer is an authorization server whose access tokens are taken.
type OAuthIssuer struct {
	Issuer     string // an https URL, which iss must be
	Keys       *Keys
	Algorithms []string
	Plain      string // PlainNever, PlainReads or PlainAlways
	Own        bool   // its subjects are this domain's own
}

// bearer verifies a token of Authorization: Bearer, by its type.
func (c *Verifier) bearer(text string, cs *tls.ConnectionState, now time.Time) (*Verified, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, err
	}

	switch t.typ {
	case typeAccess:
		return c.accessToken(t, cs, now)
	case "", "jwt", "jose":
		return c.jwtSVID(t, now)
	}

	return nil, refuseToken(ReasonType)
}

// accessToken verifies an OAuth access token (RFC 9068, 4) and its binding to the
// client certificate (RFC 8705, 3). Its subject is oauth:ISSUER#SUBJECT.
func (c *Verifier) accessToken(t *token, cs *tls.ConnectionState, now time.Time) (*Verified, error) {
	iss, _ := t.claims.text("iss")

	// The claimed issuer only chooses among the configured ones, whose key must have signed.
	i := slices.IndexFunc(c.cfg.OAuth, func(o OAuthIssuer) bool { return o.Issuer == iss })
	if i < 0 {
		return nil, refuseToken(ReasonIssuer)
	}

	issuer := c.cfg.OAuth[i]
	if err := t.verify(issuer.Keys.of(t.kid), allowed(issuer.Algorithms)); err != nil {
		return nil, err
	}

	until, err := t.within(now)
	if err != nil {
		return nil, err
	}

	if err := t.meant(c.cfg.Audiences); err != nil {
		return nil, err
	}

	// The identity contains the issuer, so no issuer can name the subjects of another.
	sub, _ := t.claims.text("sub")

	id, err := directory.ParseIdentity(oauthIdentity(iss, sub))
	if err != nil {
		return nil, refuseToken(ReasonSubject)
	}

	bound, err := t.bound(cs)
	switch {
	case err != nil:
		return nil, err
	case bound:
		// Without its certificate a bound token is worthless.
		if end := trust.Expiry(cs); end.Before(until) {
			until = end
		}

		return &Verified{Identity: id, Method: MethodOAuth, Until: until}, nil
	case issuer.Plain == PlainReads || issuer.Plain == PlainAlways:
		return &Verified{Identity: id, Method: MethodBearer, Until: until, ReadOnly: issuer.Plain == PlainReads}, nil
	}

	return nil, refuseToken(ReasonBinding)
}

// oauthIdentity returns the identity of the subject of an OAuth issuer.
func oauthIdentity(issuer, subject string) string { return "oauth:" + issuer + "#" + subject }

// bound reports whether the token is bound to the connection's client certificate.
// One that is bound to another, or in a way that is not known, is refused.
func (t *token) bound(cs *tls.ConnectionState) (bool, error) {
	if !t.claims.has("cnf") {
		return false, nil
	}

	var cnf map[string]any

	// A second method of confirmation would be a demand that is not checked here.
	if json.Unmarshal(compact.Member(t.claims, "cnf"), &cnf) != nil || len(cnf) != 1 {
		return false, refuseToken(ReasonBinding)
	}

	want, _ := cnf["x5t#S256"].(string)

	if cs == nil || len(cs.PeerCertificates) == 0 {
		return false, refuseToken(ReasonBinding)
	}

	sum := sha256.Sum256(cs.PeerCertificates[0].Raw)
	if want != directory.B64.EncodeToString(sum[:]) {
		return false, refuseToken(ReasonBinding)
	}

	return true, nil
}

// jwtSVID verifies a JWT-SVID by the keys of its trust domain's bundle (JWT-SVID,
// 4). It is good for reads alone, since it is bound to nothing.
func (c *Verifier) jwtSVID(t *token, now time.Time) (*Verified, error) {
	if !c.cfg.JWTSVID {
		return nil, refuseToken(ReasonNotTaken)
	}

	sub, _ := t.claims.text("sub")
	id := identityOrNobody(sub)

	// The programs of a domain's directory have certificates, and no bearer token may speak for them.
	spiffe, _ := id.SPIFFE()
	if strings.TrimPrefix(spiffe.Path(), "/") == "" || strings.HasPrefix(spiffe.Path(), directory.ReservedPath) {
		return nil, refuseToken(ReasonSubject)
	}

	keys := c.bundles.JWTAuthorities(spiffe.TrustDomain())
	if keys == nil {
		return nil, refuseToken(ReasonIssuer)
	}

	if err := t.verify(keys, jwtSVIDAlgorithms); err != nil {
		return nil, err
	}

	until, err := t.within(now)
	if err != nil {
		return nil, err
	}

	if until.After(now.Add(maxJWTSVIDLife)) {
		return nil, refuseToken(ReasonLifetime)
	}

	if err := t.meant(c.cfg.Audiences); err != nil {
		return nil, err
	}

	return &Verified{Identity: id, Method: MethodJWTSVID, Until: until, ReadOnly: true}, nil
}
