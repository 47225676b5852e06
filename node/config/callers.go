package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/trust/credentials"
)

// maxIssuers bounds the configured issuers of one kind.
const maxIssuers = 64

// Callers says which credentials, besides client certificates, authenticate callers.
type Callers struct {
	Addresses []string `yaml:"addresses"`
	Audiences []string `yaml:"audiences"`
	WITSVID   bool     `yaml:"wit_svid"`
	JWTSVID   bool     `yaml:"jwt_svid"`
	WIMSE     []WIMSE  `yaml:"wimse"`
	OAuth     []OAuth  `yaml:"oauth"`
}

// WIMSE is the issuer of workload identity tokens of one trust domain.
type WIMSE struct {
	Domain     string   `yaml:"domain"`
	Issuer     string   `yaml:"issuer"`
	JWKS       string   `yaml:"jwks"`
	CA         string   `yaml:"ca"`
	Algorithms []string `yaml:"algorithms"`
	Own        bool     `yaml:"own"`
}

// OAuth is an authorization server with accepted access tokens.
type OAuth struct {
	Issuer     string   `yaml:"issuer"`
	JWKS       string   `yaml:"jwks"`
	CA         string   `yaml:"ca"`
	Algorithms []string `yaml:"algorithms"`
	Plain      string   `yaml:"plain"`
	Own        bool     `yaml:"own"`
}

// paths returns the keys that name files.
func (c *Callers) paths() []*string {
	var paths []*string

	for i := range c.WIMSE {
		paths = append(paths, &c.WIMSE[i].JWKS, &c.WIMSE[i].CA)
	}

	for i := range c.OAuth {
		paths = append(paths, &c.OAuth[i].JWKS, &c.OAuth[i].CA)
	}

	return slices.DeleteFunc(paths, func(path *string) bool { return strings.Contains(*path, "://") })
}

func (c *Callers) validate() error {
	for i, address := range c.Addresses {
		if !isBaseURL(address) {
			return fmt.Errorf("callers.addresses[%d]: must be https://HOST[:PORT], got %q", i, address)
		}
	}

	for i, audience := range c.Audiences {
		if audience == "" || strings.Contains(audience, "*") {
			return fmt.Errorf("callers.audiences[%d]: must not be empty or have a *, got %q", i, audience)
		}
	}

	if len(c.WIMSE) > maxIssuers || len(c.OAuth) > maxIssuers {
		return fmt.Errorf("callers: at most %d issuers of one kind are allowed", maxIssuers)
	}

	for i, issuer := range c.WIMSE {
		if err := issuer.validate(c.WIMSE[:i]); err != nil {
			return fmt.Errorf("callers.wimse[%d].%w", i, err)
		}
	}

	for i, issuer := range c.OAuth {
		if err := issuer.validate(c.OAuth[:i]); err != nil {
			return fmt.Errorf("callers.oauth[%d].%w", i, err)
		}
	}

	return nil
}

var errNoJWKS = errors.New("jwks: missing: give a file or an https URL")

// validate returns an error that begins with the key below the list.
func (w *WIMSE) validate(before []WIMSE) error {
	isSame := func(other WIMSE) bool { return other.Domain == w.Domain }

	switch {
	case w.JWKS == "":
		return errNoJWKS
	case slices.ContainsFunc(before, isSame):
		return fmt.Errorf("domain: %q occurs twice", w.Domain)
	}

	return nil
}

func (o *OAuth) validate(before []OAuth) error {
	u, err := url.Parse(o.Issuer)
	isIssuer := err == nil && u.Scheme == "https" && u.Host != "" && u.RawQuery == "" &&
		!strings.Contains(o.Issuer, "#")
	isSame := func(other OAuth) bool { return other.Issuer == o.Issuer }

	switch {
	case !isIssuer:
		return fmt.Errorf("issuer: must be an https URL without query and fragment, got %q", o.Issuer)
	case o.JWKS == "":
		return errNoJWKS
	case !slices.Contains([]string{"", credentials.PlainNever, credentials.PlainReads, credentials.PlainAlways},
		o.Plain):
		return fmt.Errorf("plain: must be %s, %s or %s, got %q",
			credentials.PlainNever, credentials.PlainReads, credentials.PlainAlways, o.Plain)
	case slices.ContainsFunc(before, isSame):
		return fmt.Errorf("issuer: %q occurs twice", o.Issuer)
	}

	return nil
}

// isBaseURL reports whether text is https://HOST[:PORT].
func isBaseURL(text string) bool {
	u, err := url.Parse(text)

	return err == nil && u.Scheme == "https" && u.Host != "" && u.Path == "" && u.RawQuery == "" &&
		u.Fragment == "" && u.User == nil
}
