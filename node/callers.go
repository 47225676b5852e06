package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// Callers are the tokens by which callers may show who they are, besides client
// certificates.
type Callers struct {
	Addresses []string `yaml:"addresses"`
	Audiences []string `yaml:"audiences"`
	WITSVID   bool     `yaml:"wit_svid"`
	JWTSVID   bool     `yaml:"jwt_svid"`
	WIMSE     []WIMSE  `yaml:"wimse"`
	OAuth     []OAuth  `yaml:"oauth"`
}

// WIMSE is who issues the workload identity tokens of one trust domain.
type WIMSE struct {
	Domain     string   `yaml:"domain"`
	Issuer     string   `yaml:"issuer"`
	JWKS       string   `yaml:"jwks"`
	CA         string   `yaml:"ca"`
	Algorithms []string `yaml:"algorithms"`
	Own        bool     `yaml:"own"`
}

// OAuth is an authorization server whose access tokens are taken.
type OAuth struct {
	Issuer     string   `yaml:"issuer"`
	JWKS       string   `yaml:"jwks"`
	CA         string   `yaml:"ca"`
	Algorithms []string `yaml:"algorithms"`
	Plain      string   `yaml:"plain"`
	Own        bool     `yaml:"own"`
}

// maxIssuers bounds how many issuers of one kind are configured.
const maxIssuers = 64

// relativeTo makes the files that c names relative to a directory.
func (c *Callers) relativeTo(dir string) {
	place := func(file *string) {
		if *file != "" && !filepath.IsAbs(*file) && !strings.Contains(*file, "://") {
			*file = filepath.Join(dir, *file)
		}
	}
	for i := range c.WIMSE {
		place(&c.WIMSE[i].JWKS)
		place(&c.WIMSE[i].CA)
	}
	for i := range c.OAuth {
		place(&c.OAuth[i].JWKS)
		place(&c.OAuth[i].CA)
	}
}

func (c *Config) validateCallers() error {
	for i, a := range c.Callers.Addresses {
		if !isBase(a) {
			return fmt.Errorf("callers.addresses[%d]: %q is not https://HOST[:PORT] without a path", i, a)
		}
	}
	if slices.ContainsFunc(c.Callers.Audiences, func(a string) bool { return a == "" || strings.Contains(a, "*") }) {
		return errors.New("callers.audiences: an audience is empty or has a *: a token that is for anybody is for nobody")
	}
	if len(c.Callers.WIMSE) > maxIssuers || len(c.Callers.OAuth) > maxIssuers {
		return fmt.Errorf("callers: over %d issuers of one kind", maxIssuers)
	}
	for i, w := range c.Callers.WIMSE {
		if w.JWKS == "" {
			return fmt.Errorf("callers.wimse[%d].jwks: missing: a file or an https URL", i)
		}
		if slices.ContainsFunc(c.Callers.WIMSE[:i], func(o WIMSE) bool { return o.Domain == w.Domain }) {
			return fmt.Errorf("callers.wimse[%d].domain: %q occurs twice", i, w.Domain)
		}
	}
	for i, o := range c.Callers.OAuth {
		u, err := url.Parse(o.Issuer)
		switch {
		case err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || strings.Contains(o.Issuer, "#"):
			return fmt.Errorf("callers.oauth[%d].issuer: %q is not an https URL without query and fragment", i, o.Issuer)
		case o.JWKS == "":
			return fmt.Errorf("callers.oauth[%d].jwks: missing: a file or an https URL", i)
		case !slices.Contains([]string{"", trust.PlainNever, trust.PlainReads, trust.PlainAlways}, o.Plain):
			return fmt.Errorf("callers.oauth[%d].plain: %q is none of never, reads, always", i, o.Plain)
		case slices.ContainsFunc(c.Callers.OAuth[:i], func(p OAuth) bool { return p.Issuer == o.Issuer }):
			return fmt.Errorf("callers.oauth[%d].issuer: %q occurs twice", i, o.Issuer)
		}
	}
	return nil
}

// isBase reports whether s is https://HOST[:PORT].
func isBase(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.Path == "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// wireCallers makes the judge of who calls, and keeps the keys of the issuers that
// it believes.
func (n *Node) wireCallers() error {
	c := n.cfg.Callers
	cfg := trust.CallersConfig{Audiences: c.Audiences, WITSVID: c.WITSVID, JWTSVID: c.JWTSVID}
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
		cfg.WIMSE = append(cfg.WIMSE, trust.WIMSEIssuer{Domain: w.Domain, Issuer: w.Issuer, Keys: keys, Algorithms: w.Algorithms, Own: w.Own})
	}
	for i, o := range c.OAuth {
		keys, err := n.issuerKeys(o.JWKS, o.CA)
		if err != nil {
			return fmt.Errorf("callers.oauth[%d]: %w", i, err)
		}
		cfg.OAuth = append(cfg.OAuth, trust.OAuthIssuer{Issuer: o.Issuer, Keys: keys, Algorithms: o.Algorithms, Plain: o.Plain, Own: o.Own})
	}
	var err error
	if n.callers, err = trust.NewCallers(cfg, n.bundles); err != nil {
		return fmt.Errorf("callers: %w", err)
	}
	n.policy.Adopt(n.callers.OwnPrefixes())
	return nil
}

// issuerKeys opens an issuer's keys and has them kept as their source has them.
func (n *Node) issuerKeys(source, ca string) (*trust.Keys, error) {
	roots, err := readRoots(ca)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	keys, err := trust.OpenKeys(source, roots)
	if err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}
	n.life.loop("keys of "+source, func(ctx context.Context) { keys.Run(ctx, n.log) })
	return keys, nil
}

// takes is what the API tells of the tokens that are taken.
func (n *Node) takes() api.Takes {
	c := n.cfg.Callers
	t := api.Takes{WPT: c.WITSVID || len(c.WIMSE) > 0, JWTSVID: c.JWTSVID}
	for _, o := range c.OAuth {
		t.Issuers = append(t.Issuers, o.Issuer)
		if o.Plain == trust.PlainAlways || o.Plain == trust.PlainReads && t.Plain == "" {
			t.Plain = o.Plain
		}
	}
	return t
}

// identify returns who makes a request; nobody where nothing was shown. Why a
// credential was refused is counted, and what it was is told to nobody.
func (n *Node) identify(r *http.Request) (api.Credential, error) {
	tokens, err := api.TokensOf(r)
	if err != nil {
		n.metrics.credentialRefused(string(trust.ReasonNotTaken))
		return api.Credential{}, err
	}
	v, err := n.callers.Verify(trust.Shown{
		TLS: r.TLS, WIT: tokens.WIT, Proof: tokens.Proof, Bearer: tokens.Bearer, Method: r.Method, Path: r.URL.EscapedPath(),
	}, time.Now())
	if err != nil {
		n.metrics.credentialRefused(trust.ReasonOf(err))
		return api.Credential{}, directory.Refuse(directory.Unauthenticated, "The credential that came with the request does not hold: %s.", trust.Saying(err))
	}
	return api.Credential{
		Identity: v.Identity, Method: v.Method, Until: v.Until, Life: v.Life, ReadOnly: v.ReadOnly, Token: v.Method != "" && v.Method != trust.MethodSVID,
		Proof: v.Proof, ProofUntil: v.ProofUntil,
	}, nil
}
