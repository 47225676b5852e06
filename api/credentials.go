package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Credential is what was verified of a request.
type Credential struct {
	Identity directory.Identity // nobody for an anonymous caller
	Method   string             // how it was shown: x509-svid, wpt, oauth, bearer or jwt-svid
	Until    time.Time          // when it ends; the zero time for never
	Life     time.Duration      // how long it is good for as a whole; of a token, what is left
	Token    bool               // it is a token, not the connection's certificate
	ReadOnly bool               // it is not good for changes
	// Proof and ProofUntil are those of directory.Caller.
	Proof      directory.Hash
	ProofUntil int64
}

// Tokens are what a request has in its header to show who makes it. None of it has
// been verified.
type Tokens struct {
	WIT    string // Workload-Identity-Token (draft-ietf-wimse-workload-creds-02)
	Proof  string // Authorization: WPT (draft-ietf-wimse-wpt-02)
	Bearer string // Authorization: Bearer (RFC 6750)
}

var errAuthorization = directory.Refuse(directory.Unauthenticated,
	"The Authorization is of a scheme that is not taken here, or there are several: show who you are once, in a way that /.well-known/ad lists.")

// TokensOf returns the tokens of a request. It refuses two where one may be, and
// schemes that are not known: what came to show who calls is never passed over.
func TokensOf(r *http.Request) (Tokens, error) {
	var t Tokens
	wits, auths := r.Header.Values("Workload-Identity-Token"), r.Header.Values("Authorization")
	if len(wits) > 1 || len(auths) > 1 {
		return t, errAuthorization
	}
	if len(wits) == 1 {
		t.WIT = strings.Trim(wits[0], " \t")
	}
	if len(auths) == 0 {
		return t, nil
	}
	scheme, value, _ := strings.Cut(strings.Trim(auths[0], " \t"), " ")
	value = strings.TrimLeft(value, " ")
	switch {
	case value == "" || strings.ContainsAny(value, " ,\t"):
	case strings.EqualFold(scheme, "WPT"):
		t.Proof = value
		return t, nil
	case strings.EqualFold(scheme, "Bearer"):
		t.Bearer = value
		return t, nil
	}
	return t, errAuthorization
}

// Takes says by which tokens callers may show who they are, besides client
// certificates: what is told at the well-known URIs, and what challenges name besides WPT.
type Takes struct {
	WPT     bool     // workload identity tokens with their proof
	JWTSVID bool     // JWT-SVIDs, for reads
	Issuers []string // of OAuth access tokens
	// Plain is for what access tokens are good that are bound to no client
	// certificate: "reads" or "always"; empty where they are not taken.
	Plain string
}

// methods are the names of the ways to show who one is.
func (t Takes) methods() []string {
	list := []string{"x509-svid"}
	if t.WPT {
		list = append(list, "wpt")
	}
	if len(t.Issuers) > 0 {
		list = append(list, "oauth")
	}
	if t.JWTSVID {
		list = append(list, "jwt-svid")
	}
	return list
}

const resourcePath = "/.well-known/oauth-protected-resource"

// challenges are those of every 401, one for each way to show in a header who one is. No
// scheme is for client certificates (Mutual, which there is, is RFC 8120's, of passwords),
// and a challenge must be named (RFC 9110, 15.5.2): so WPT is, which has no parameters,
// whatever is taken here; the problem's detail says what is.
func (s *Server) challenges(c *call) []string {
	realm := `realm="` + s.cfg.Domain.Name() + `"`
	list := []string{"WPT"}
	if len(s.cfg.Takes.Issuers) == 0 && !s.cfg.Takes.JWTSVID {
		return list
	}
	bearer := "Bearer " + realm
	if len(s.cfg.Takes.Issuers) > 0 {
		bearer += `, resource_metadata="` + s.cfg.PublicURL + resourcePath + `"` // RFC 9728, 5.1
	}
	if t, err := TokensOf(c.Request); err == nil && t.Bearer != "" {
		bearer += `, error="invalid_token"` // RFC 6750, 3.1
	}
	return append(list, bearer)
}

// protectedResource answers GET /.well-known/oauth-protected-resource (RFC 9728, 3).
// plain_bearer is ours: for what tokens are good that are bound to nothing.
func (s *Server) protectedResource(w http.ResponseWriter, c *call) error {
	t := s.cfg.Takes
	b := strictjson.AppendText([]byte{'{'}, "resource", s.cfg.PublicURL)
	b = strictjson.AppendRaw(b, "authorization_servers", appendStrings(nil, t.Issuers))
	b = strictjson.AppendRaw(b, "bearer_methods_supported", []byte(`["header"]`))
	bound := "true"
	if t.Plain != "" {
		bound = "false"
	}
	b = strictjson.AppendRaw(b, "tls_client_certificate_bound_access_tokens", []byte(bound))
	b = strictjson.AppendText(b, "resource_name", "Agent directory of "+s.cfg.Domain.Name())
	if t.Plain != "" {
		b = strictjson.AppendText(b, "plain_bearer", t.Plain)
	}
	return sendPublic(w, c, "application/json", append(b, '}', '\n'))
}
