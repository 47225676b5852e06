package node

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/request"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/credentials"
)

// wireCallers makes the verifier of callers, and keeps the keys of the issuers that it
// trusts.
func (n *Node) wireCallers() error {
	callers := n.cfg.Callers
	cfg := credentials.Config{Audiences: callers.Audiences, WITSVID: callers.WITSVID, JWTSVID: callers.JWTSVID}

	cfg.Addresses = append([]string{n.cfg.PublicURL}, callers.Addresses...)
	if own := n.member().API; own != "" {
		cfg.Addresses = append(cfg.Addresses, own)
	}

	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{n.cfg.PublicURL}
	}

	for i, w := range callers.WIMSE {
		keys, err := n.issuerKeys(w.JWKS, w.CA)
		if err != nil {
			return fmt.Errorf("callers.wimse[%d]: %w", i, err)
		}

		cfg.WIMSE = append(cfg.WIMSE, credentials.WIMSEIssuer{Domain: w.Domain, Issuer: w.Issuer, Keys: keys,
			Algorithms: w.Algorithms, Own: w.Own})
	}

	for i, auth := range callers.OAuth {
		keys, err := n.issuerKeys(auth.JWKS, auth.CA)
		if err != nil {
			return fmt.Errorf("callers.oauth[%d]: %w", i, err)
		}

		cfg.OAuth = append(cfg.OAuth, credentials.OAuthIssuer{Issuer: auth.Issuer, Keys: keys,
			Algorithms: auth.Algorithms, Plain: auth.Plain, Own: auth.Own})
	}

	var err error
	if n.callers, err = credentials.New(cfg, n.bundles); err != nil {
		return fmt.Errorf("callers: %w", err)
	}

	// Identities by the domain's own issuers are the domain's in policy, too.
	n.policy.Adopt(n.callers.OwnPrefixes())

	return nil
}

// issuerKeys opens an issuer's keys and has them kept as their source has them.
func (n *Node) issuerKeys(source, ca string) (*credentials.Keys, error) {
	roots, err := readRoots(ca)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}

	keys, err := credentials.OpenKeys(source, roots)
	if err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}

	n.life.loop("keys of "+source, func(ctx context.Context) { keys.Run(ctx, n.log) })

	return keys, nil
}

// acceptedCredentials are the tokens that the API accepts.
func (n *Node) acceptedCredentials() request.AcceptedCredentials {
	c := n.cfg.Callers

	t := request.AcceptedCredentials{WPT: c.WITSVID || len(c.WIMSE) > 0, JWTSVID: c.JWTSVID}
	for _, auth := range c.OAuth {
		t.Issuers = append(t.Issuers, auth.Issuer)

		// The widest use that any issuer permits is announced.
		if auth.Plain == credentials.PlainAlways || auth.Plain == credentials.PlainReads && t.Plain == "" {
			t.Plain = auth.Plain
		}
	}

	return t
}

// identify returns the identity that makes a request; zero if it has no credentials. The
// reason of a refusal is counted; the credential itself is never reported.
func (n *Node) identify(r *http.Request) (request.Credential, error) {
	tokens, err := request.TokensOf(r)
	if err != nil {
		n.metrics.CredentialRefused(string(credentials.ReasonNotTaken))
		return request.Credential{}, err
	}

	verified, err := n.callers.Verify(shown(r, tokens), time.Now())
	if err != nil {
		n.metrics.CredentialRefused(credentials.ReasonOf(err))

		return request.Credential{}, directory.Refuse(directory.Unauthenticated,
			"invalid credential: %s", credentials.Detail(err))
	}

	return request.Credential{
		Identity: verified.Identity, Method: verified.Method, Until: verified.Until, Life: verified.Life,
		ReadOnly: verified.ReadOnly, Token: verified.Method != "" && verified.Method != credentials.MethodSVID,
		Proof: verified.Proof, ProofUntil: verified.ProofUntil,
	}, nil
}

// claimedBy returns the function that tells the identity which a request's token names, without
// verifying it.
func claimedBy(callers *credentials.Verifier) func(*http.Request) directory.Identity {
	return func(r *http.Request) directory.Identity {
		tokens, err := request.TokensOf(r)
		if err != nil {
			return directory.Identity{}
		}

		return callers.Claimed(shown(r, tokens))
	}
}

func shown(r *http.Request, tokens request.Tokens) credentials.Shown {
	return credentials.Shown{
		TLS: r.TLS, WIT: tokens.WIT, Proof: tokens.Proof, Bearer: tokens.Bearer, Method: r.Method,
		Path: r.URL.EscapedPath(),
	}
}
