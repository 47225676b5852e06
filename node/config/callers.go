package config

import (
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

func (c *Callers) validate(r *report) {
	for i, address := range c.Addresses {
		r.require(isBaseURL(address), fmt.Sprintf("callers.addresses[%d]", i), "must be https://HOST[:PORT], got %q",
			address)
	}

	for i, audience := range c.Audiences {
		r.require(audience != "" && !strings.Contains(audience, "*"), fmt.Sprintf("callers.audiences[%d]", i),
			"must not be empty or have a *, got %q", audience)
	}

	r.require(len(c.WIMSE) <= maxIssuers, "callers.wimse", "at most %d are allowed, got %d", maxIssuers, len(c.WIMSE))
	r.require(len(c.OAuth) <= maxIssuers, "callers.oauth", "at most %d are allowed, got %d", maxIssuers, len(c.OAuth))

	for i, issuer := range c.WIMSE {
		issuer.validate(r, fmt.Sprintf("callers.wimse[%d]", i), c.WIMSE[:i])
	}

	for i, issuer := range c.OAuth {
		issuer.validate(r, fmt.Sprintf("callers.oauth[%d]", i), c.OAuth[:i])
	}
}

// keys checks the source of a key set.
func (r *report) keys(key, source string) {
	r.require(source != "", key, "missing: give a file or an https URL")

	if strings.Contains(source, "://") {
		u, err := url.Parse(source)
		r.require(err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.Fragment == "", key,
			"must be a file or an https URL without a user name, got %q", source)
	}
}

func (w *WIMSE) validate(r *report, at string, before []WIMSE) {
	isSame := func(other WIMSE) bool { return other.Domain == w.Domain }

	r.keys(at+".jwks", w.JWKS)
	r.require(!slices.ContainsFunc(before, isSame), at+".domain", "%q occurs twice", w.Domain)
}

func (o *OAuth) validate(r *report, at string, before []OAuth) {
	u, err := url.Parse(o.Issuer)
	isIssuer := err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" &&
		!strings.Contains(o.Issuer, "#")
	isSame := func(other OAuth) bool { return other.Issuer == o.Issuer }
	plain := []string{"", credentials.PlainNever, credentials.PlainReads, credentials.PlainAlways}

	r.require(isIssuer, at+".issuer", "must be an https URL without user name, query and fragment, got %q", o.Issuer)
	r.require(!slices.ContainsFunc(before, isSame), at+".issuer", "%q occurs twice", o.Issuer)
	r.keys(at+".jwks", o.JWKS)
	r.require(slices.Contains(plain, o.Plain), at+".plain", "must be %s, %s or %s, got %q",
		credentials.PlainNever, credentials.PlainReads, credentials.PlainAlways, o.Plain)
}

// isBaseURL reports whether text is https://HOST[:PORT].
func isBaseURL(text string) bool {
	u, err := url.Parse(text)

	return err == nil && u.Hostname() != "" && text == "https://"+u.Host && isPortOrNone(u.Port())
}
