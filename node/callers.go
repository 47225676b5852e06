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

// wireCallers makes the judge of who calls, and keeps the keys of the issuers that
// it believes.
func (n *Node) wireCallers() error {
	c := n.cfg.Callers
	cfg := credentials.Config{Audiences: c.Audiences, WITSVID: c.WITSVID, JWTSVID: c.JWTSVID}
	cfg.Addresses = append([]string{n.cfg.PublicURL}, c.Addresses...)
	if own := n.member().API; own != "" {
		cfg.Addresses = append(cfg.Addresses, own)
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{n.cfg.PublicURL}
	}
	for i, w := range c.WIMSE {
		keys, err := n.issuerKeys(w.JWKS, w.CA)
		if err != nil {
			return fmt.Errorf("callers.wimse[%d]: %w", i, err)
		}
		cfg.WIMSE = append(cfg.WIMSE, credentials.WIMSEIssuer{Domain: w.Domain, Issuer: w.Issuer, Keys: keys, Algorithms: w.Algorithms, Own: w.Own})
	}
	for i, o := range c.OAuth {
		keys, err := n.issuerKeys(o.JWKS, o.CA)
		if err != nil {
			return fmt.Errorf("callers.oauth[%d]: %w", i, err)
		}
		cfg.OAuth = append(cfg.OAuth, credentials.OAuthIssuer{Issuer: o.Issuer, Keys: keys, Algorithms: o.Algorithms, Plain: o.Plain, Own: o.Own})
	}
	var err error
	if n.callers, err = credentials.New(cfg, n.bundles); err != nil {
		return fmt.Errorf("callers: %w", err)
	}
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
	for _, o := range c.OAuth {
		t.Issuers = append(t.Issuers, o.Issuer)
		if o.Plain == credentials.PlainAlways || o.Plain == credentials.PlainReads && t.Plain == "" {
			t.Plain = o.Plain
		}
	}
	return t
}

// identify returns who makes a request; nobody where nothing was shown. Why a
// credential was refused is counted, and what it was is told to nobody.
func (n *Node) identify(r *http.Request) (request.Credential, error) {
	tokens, err := request.TokensOf(r)
	if err != nil {
		n.metrics.credentialRefused(string(credentials.ReasonNotTaken))
		return request.Credential{}, err
	}
	v, err := n.callers.Verify(credentials.Shown{
		TLS: r.TLS, WIT: tokens.WIT, Proof: tokens.Proof, Bearer: tokens.Bearer, Method: r.Method, Path: r.URL.EscapedPath(),
	}, time.Now())
	if err != nil {
		n.metrics.credentialRefused(credentials.ReasonOf(err))
		return request.Credential{}, directory.Refuse(directory.Unauthenticated, "The credential that came with the request does not hold: %s.", credentials.Detail(err))
	}
	return request.Credential{
		Identity: v.Identity, Method: v.Method, Until: v.Until, Life: v.Life, ReadOnly: v.ReadOnly, Token: v.Method != "" && v.Method != credentials.MethodSVID,
		Proof: v.Proof, ProofUntil: v.ProofUntil,
	}, nil
}
