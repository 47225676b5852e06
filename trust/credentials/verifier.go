package credentials

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// Methods by which a caller may authenticate.
const (
	MethodSVID    = "x509-svid" // the connection's client certificate
	MethodWPT     = "wpt"       // a workload identity token with its proof
	MethodOAuth   = "oauth"     // an access token that is bound to the client certificate
	MethodBearer  = "bearer"    // an access token that is not
	MethodJWTSVID = "jwt-svid"
)

// Config names the tokens that are accepted, besides client certificates.
type Config struct {
	// Addresses are the base URLs (https://HOST[:PORT]) of this directory. The target of
	// a proof is at one of them.
	Addresses []string
	// Audiences are the audiences of other tokens: each token must name one of them.
	Audiences []string
	WIMSE     []WIMSEIssuer
	OAuth     []OAuthIssuer
	WITSVID   bool // whether workload identity tokens by keys of the bundles are taken
	JWTSVID   bool // whether JWT-SVIDs are taken, for reads
}

// A Verifier verifies the credentials of a request and returns the caller's identity.
// It is safe for concurrent use.
type Verifier struct {
	cfg     Config
	bundles *trust.Bundles
	clients *trust.ChainVerifier
}

// New returns a judge of callers over cfg and the bundles of the trust
// domains. It refuses an algorithm that is not known, or symmetric.
func New(cfg Config, bundles *trust.Bundles) (*Verifier, error) {
	lists := map[string][]string{}
	for _, w := range cfg.WIMSE {
		// Only a path makes an identity of a domain's name.
		if domainOf(identityOrNobody(w.Domain+"/x")) != w.Domain {
			return nil, fmt.Errorf("%q is not spiffe://NAME or wimse://NAME", w.Domain)
		}

		lists[w.Domain] = w.Algorithms
	}

	for _, o := range cfg.OAuth {
		lists[o.Issuer] = o.Algorithms
	}

	for issuer, list := range lists {
		for _, alg := range list {
			if !slices.Contains(algorithms, jose.SignatureAlgorithm(alg)) {
				return nil, fmt.Errorf("%s: the algorithm must be one of %[3]v, got %[2]q", issuer, alg, algorithms)
			}
		}
	}

	return &Verifier{cfg: cfg, bundles: bundles, clients: trust.NewClientVerifier(bundles)}, nil
}

// identityOrNobody parses an identity; it returns the zero Identity if s is not one.
func identityOrNobody(s string) directory.Identity {
	id, _ := directory.ParseIdentity(s)
	return id
}

// defaultAlgorithms are an issuer's if configuration names none.
var defaultAlgorithms = []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA, jose.RS256, jose.PS256}

func allowed(names []string) []jose.SignatureAlgorithm {
	if len(names) == 0 {
		return defaultAlgorithms
	}

	list := make([]jose.SignatureAlgorithm, len(names))
	for i, name := range names {
		list[i] = jose.SignatureAlgorithm(name)
	}

	return list
}

// Shown holds the credentials of a request. Only the certificates of TLS have been
// verified.
type Shown struct {
	TLS                *tls.ConnectionState
	WIT, Proof, Bearer string
	Method, Path       string // of the request and of its target, as they were sent
}

// Verified is the identity that makes a request, and the method by which it
// authenticated.
type Verified struct {
	Identity directory.Identity
	Method   string
	Until    time.Time     // when that ends
	Life     time.Duration // its whole lifetime; for a token, the remaining one
	ReadOnly bool          // it is not good for changes
	// Proof and ProofUntil are those of directory.Caller.
	Proof      directory.Hash
	ProofUntil int64
}

// Verify returns the identity that makes a request, or a zero Verified if the request
// has no credentials. A token takes precedence. A client certificate beside it must be
// of the same identity, or be the one to which the token is bound. ReasonOf and Saying
// describe the error.
func (c *Verifier) Verify(shown Shown, now time.Time) (Verified, error) {
	certified, err := c.certified(shown.TLS, now)
	if err != nil {
		return Verified{}, err
	}

	token, err := c.token(shown, now)
	switch {
	case err != nil:
		return Verified{}, err
	case token == nil:
		return certified, nil
	}

	token.Life = token.Until.Sub(now)
	switch {
	case certified.Identity.IsZero() || token.Method == MethodOAuth:
		// An access token names no workload, and its binding to the certificate was checked with it.
		return *token, nil
	case certified.Identity != token.Identity:
		return Verified{}, refuseToken(ReasonAmbiguous)
	}

	// Both say the same: the connection is the stronger word.
	return certified, nil
}

func (c *Verifier) certified(cs *tls.ConnectionState, now time.Time) (Verified, error) {
	end := trust.Expiry(cs)

	// It is refused and not ignored, so that a caller that means to authenticate is never anonymous.
	if !end.IsZero() && !now.Before(end) {
		return Verified{}, &refusal{
			ReasonExpired, "the client certificate of this connection has expired: connect again with the new one",
		}
	}

	id, ok := trust.PeerID(cs)
	if !ok {
		return Verified{}, nil
	}

	return Verified{Identity: directory.IdentityOf(id), Method: MethodSVID, Until: end,
		Life: end.Sub(cs.PeerCertificates[0].NotBefore)}, nil
}

// Holds reports whether the client certificate of a connection would be taken now. The
// handshake has judged it by the bundles at that time: it is judged again once for each
// later bundle of its domain.
func (c *Verifier) Holds(cs *tls.ConnectionState, now time.Time) bool {
	if _, ok := trust.PeerID(cs); !ok {
		return false
	}

	_, err := c.clients.Verify(cs.PeerCertificates, now)

	return err == nil
}

func (c *Verifier) token(shown Shown, now time.Time) (*Verified, error) {
	switch {
	case shown.WIT != "" && shown.Bearer != "", shown.Proof != "" && shown.Bearer != "":
		return nil, refuseToken(ReasonAmbiguous)
	case shown.WIT != "" || shown.Proof != "":
		return c.workload(shown, now)
	case shown.Bearer != "":
		return c.bearer(shown.Bearer, shown.TLS, now)
	}

	return nil, nil
}

// Claimed returns the identity that the token of a request names; zero if there is none. Nothing is
// verified: it only tells whose requests the request would count against.
func (c *Verifier) Claimed(shown Shown) directory.Identity {
	text := shown.Bearer
	if shown.WIT != "" {
		text = shown.WIT
	}

	subject, _, err := ClaimsOf(text)
	if err != nil {
		return directory.Identity{}
	}

	return identityOrNobody(subject)
}

// OwnPrefixes are how the URIs of those identities begin that configuration counts
// among this domain's own.
func (c *Verifier) OwnPrefixes() []string {
	var list []string
	for _, w := range c.cfg.WIMSE {
		if w.Own {
			list = append(list, w.Domain+"/")
		}
	}

	for _, o := range c.cfg.OAuth {
		if o.Own {
			list = append(list, "oauth:"+o.Issuer+"#")
		}
	}

	return list
}

// ReasonOf returns the label by which an error of Verify is counted.
func ReasonOf(err error) string {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return string(refused.reason)
	}

	return string(trust.ReasonUntrusted)
}

// Detail returns the text of an error of Verify for the caller.
func Detail(err error) string {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.text
	}

	return "it is not valid"
}
