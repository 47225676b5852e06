package credentials

import (
	"crypto"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/compact"
)

// The JOSE types of WIMSE's tokens, without application/.
const (
	typeWIT = "wit+jwt"
	typeWPT = "wpt+jwt"
)

// maxProofLife is how long a proof of possession may hold.
const maxProofLife = 60 * time.Second

// maxJTI bounds a proof's jti in bytes.
const maxJTI = 256

// witAlgorithms are those by which a trust domain's bundle may sign workload
// identity tokens (WIT-SVID, 2.3), and those that a workload may prove itself by.
var (
	witAlgorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512,
		jose.PS256, jose.PS384, jose.PS512}
	proofAlgorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.EdDSA, jose.RS256, jose.PS256}
)

// A WIMSEIssuer issues the workload identity tokens of one trust domain.
type WIMSEIssuer struct {
	// Domain is spiffe://NAME or wimse://NAME: the same name under the two schemes
	// is two domains (draft-ietf-wimse-identifier-03, 4.1).
	Domain     string
	Issuer     string // required value of iss; empty if it may be any, or be missing
	Keys       *Keys
	Algorithms []string
	Own        bool // its workloads are this domain's own
}

// workload verifies a workload identity token and its proof
// (draft-ietf-wimse-workload-creds-02, draft-ietf-wimse-wpt-02): that the trust
// domain of the token's subject signed it, and that the key in it signed a proof for
// this request, just now.
func (c *Verifier) workload(shown Shown, now time.Time) (*Verified, error) {
	if shown.WIT == "" || shown.Proof == "" {
		return nil, refuseToken(ReasonNoProof)
	}

	t, id, err := c.identityToken(shown.WIT, now)
	if err != nil {
		return nil, err
	}

	until, err := t.within(now)
	if err != nil {
		return nil, err
	}

	key, alg, err := t.confirmation()
	if err != nil {
		return nil, err
	}

	jti, ends, err := c.proof(shown, key, alg, now)
	if err != nil {
		return nil, err
	}

	// The name of the proof includes the identity, so that no other identity can use up
	// this proof.
	name := directory.HashOf([]byte(id.String() + "\n" + jti))

	return &Verified{
		Identity: id, Method: MethodWPT, Until: until,
		Proof: name, ProofUntil: ends.Add(trust.MaxClockSkew).Unix(), // the leader's clock may be behind ours
	}, nil
}

// identityToken verifies a workload identity token by the keys of its subject's
// trust domain: those that are configured, or else those of the domain's bundle.
func (c *Verifier) identityToken(text string, now time.Time) (*token, directory.Identity, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, directory.Identity{}, err
	}

	if t.typ != typeWIT {
		return nil, directory.Identity{}, refuseToken(ReasonType)
	}

	subject, _ := t.claims.text("sub")
	id := identityOrNobody(subject)

	domain := domainOf(id)
	if domain == "" || strings.TrimPrefix(subject, domain) == "" {
		return nil, id, refuseToken(ReasonSubject)
	}

	// The programs of a domain's directory have certificates. No token makes anyone one of them,
	// whatever the scheme of its subject.
	if strings.HasPrefix(strings.TrimPrefix(subject, domain), directory.ReservedPath) {
		return nil, id, refuseToken(ReasonSubject)
	}

	keys, allowed := c.issuerKeys(id, domain, t)
	if keys == nil {
		return nil, id, refuseToken(ReasonIssuer)
	}

	return t, id, t.verify(keys, allowed)
}

func (c *Verifier) issuerKeys(id directory.Identity, domain string, t *token) (map[string]crypto.PublicKey,
	[]jose.SignatureAlgorithm) {
	if i := slices.IndexFunc(c.cfg.WIMSE, func(w WIMSEIssuer) bool { return w.Domain == domain }); i >= 0 {
		w := c.cfg.WIMSE[i]
		if iss, _ := t.claims.text("iss"); w.Issuer != "" && iss != w.Issuer {
			return nil, nil
		}

		return w.Keys.of(t.kid), allowed(w.Algorithms)
	}

	if id, ok := id.SPIFFE(); ok && c.cfg.WITSVID {
		return c.bundles.WITAuthorities(id.TrustDomain()), witAlgorithms
	}

	return nil, nil
}

// domainOf returns the scheme and trust domain of a spiffe: or wimse: identity;
// empty for others.
func domainOf(id directory.Identity) string {
	uri := id.String()

	scheme, rest, _ := strings.Cut(uri, "://")
	if scheme != "spiffe" && scheme != "wimse" {
		return ""
	}

	name, _, _ := strings.Cut(rest, "/")
	if _, err := spiffeid.TrustDomainFromString(name); err != nil {
		return ""
	}

	return scheme + "://" + name
}

// confirmation returns the key that the token's bearer must prove to have, and the
// algorithm to do it by: cnf.jwk with its alg.
func (t *token) confirmation() (crypto.PublicKey, string, error) {
	var (
		cnf struct {
			JWK jsontext.Value `json:"jwk"`
		}
		about struct {
			Alg string `json:"alg"`
		}
	)
	if json.Unmarshal(compact.Member(t.claims, "cnf"), &cnf) != nil || json.Unmarshal(cnf.JWK, &about) != nil {
		return nil, "", refuseToken(ReasonClaims)
	}

	key, err := parseJWK(cnf.JWK)

	// The token fixes the algorithm of its proofs, so that the bearer cannot choose another one.
	alg := jose.SignatureAlgorithm(about.Alg)
	if err != nil || !slices.Contains(proofAlgorithms, alg) || !fits(alg, key) {
		return nil, "", refuseToken(ReasonClaims)
	}

	return key, about.Alg, nil
}

// proof verifies a workload proof token: by the key of the identity token, over
// that token, for this request's target, and not for long. It returns its jti.
func (c *Verifier) proof(shown Shown, key crypto.PublicKey, alg string, now time.Time) (jti string, exp time.Time,
	err error) {
	t, err := parseToken(shown.Proof)
	if err != nil {
		return "", exp, err
	}

	if t.typ != typeWPT {
		return "", exp, refuseToken(ReasonType)
	}

	if t.alg != alg {
		return "", exp, refuseToken(ReasonAlgorithm)
	}

	if err := t.verifyBy(key); err != nil {
		return "", exp, err
	}

	if exp, err = t.within(now); err != nil {
		return "", exp, err
	}

	if exp.After(now.Add(maxProofLife)) {
		return "", exp, refuseToken(ReasonLifetime)
	}

	if err := t.meant(c.targets(shown.Path)); err != nil {
		return "", exp, err
	}

	// One key may be in several tokens, and a proof is for one of them.
	if hash, _ := t.claims.text("wth"); hash != tokenHash(shown.WIT) {
		return "", exp, refuseToken(ReasonBinding)
	}

	// The draft binds no method, but lets registered claims be added: htm is, by RFC
	// 9449. A proof that names a method is for that one. So an observer can't use it for
	// a read or a removal before it is used.
	if method, _ := t.claims.text("htm"); t.claims.has("htm") && method != shown.Method {
		return "", exp, refuseToken(ReasonMethod)
	}

	// These bind the proof to tokens that the request would have to show, which is not checked here.
	if t.claims.has("tth") || t.claims.has("oth") {
		return "", exp, refuseToken(ReasonTokenBound)
	}

	jti, _ = t.claims.text("jti")
	if jti == "" || len(jti) > maxJTI {
		return "", exp, refuseToken(ReasonClaims)
	}

	return jti, exp, nil
}

// targets are the URIs that a proof for a request to path may name: at the
// addresses that configuration gives, never at one that the request does.
func (c *Verifier) targets(path string) []string {
	uris := make([]string, len(c.cfg.Addresses))
	for i, base := range c.cfg.Addresses {
		uris[i] = base + path
	}

	return uris
}

// tokenHash is the hash by which a proof names a token.
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return directory.B64.EncodeToString(sum[:])
}
