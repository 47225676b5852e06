package request

import (
	"net/http"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A Credential is the result of verifying how a request authenticates.
type Credential struct {
	Identity directory.Identity // zero for an anonymous caller
	Method   string             // x509-svid, wpt, oauth, bearer or jwt-svid; empty for an anonymous caller
	Until    time.Time          // when it expires; the zero time for never
	Life     time.Duration      // its whole lifetime; of a token, the remainder
	Token    bool               // it is a token, not the connection's certificate
	ReadOnly bool               // it may not be used for changes
	// Proof and ProofUntil are those of directory.Caller.
	Proof      directory.Hash
	ProofUntil int64
}

// Tokens are the credentials in a request's header. They are not verified.
type Tokens struct {
	WIT    string // Workload-Identity-Token (draft-ietf-wimse-workload-creds-02)
	Proof  string // Authorization: WPT (draft-ietf-wimse-wpt-02)
	Bearer string // Authorization: Bearer (RFC 6750)
}

// HasToken tells whether a request has a credential in its header.
func HasToken(header http.Header) bool {
	return len(header["Authorization"]) > 0 || len(header["Workload-Identity-Token"]) > 0
}

var errAuthorization = directory.Refuse(directory.Unauthenticated,
	"the Authorization header has an unsupported scheme, or there are several credentials. "+
		"Authenticate once, by a method that /.well-known/ad lists")

// TokensOf returns the tokens of a request. It refuses a repeated header and an unknown
// scheme: a credential that was sent is never ignored.
func TokensOf(r *http.Request) (Tokens, error) {
	var tokens Tokens

	wits := r.Header.Values("Workload-Identity-Token")

	auths := r.Header.Values("Authorization")
	if len(wits) > 1 || len(auths) > 1 {
		return tokens, errAuthorization
	}

	if len(wits) == 1 {
		tokens.WIT = strings.Trim(wits[0], " \t")
	}

	if len(auths) == 0 {
		return tokens, nil
	}

	scheme, value, _ := strings.Cut(strings.Trim(auths[0], " \t"), " ")

	value = strings.TrimLeft(value, " ")
	switch {
	case value == "" || strings.ContainsAny(value, " ,\t"):
	case strings.EqualFold(scheme, "WPT"):
		tokens.Proof = value
		return tokens, nil
	case strings.EqualFold(scheme, "Bearer"):
		tokens.Bearer = value
		return tokens, nil
	}

	return tokens, errAuthorization
}

// AcceptedCredentials are the tokens that a node accepts besides client certificates.
// The well-known URIs list them, and challenges name them.
type AcceptedCredentials struct {
	WPT     bool     // workload identity tokens with their proof
	JWTSVID bool     // JWT-SVIDs, for reads
	Issuers []string // of OAuth access tokens
	// Plain is the use of access tokens that are bound to no client certificate: "reads" or
	// "always"; empty if they are not accepted.
	Plain string
}

// Methods are the names of the accepted authentication methods.
func (a AcceptedCredentials) Methods() []string {
	methods := []string{"x509-svid"}
	if a.WPT {
		methods = append(methods, "wpt")
	}

	if len(a.Issuers) > 0 {
		methods = append(methods, "oauth")
	}

	if a.JWTSVID {
		methods = append(methods, "jwt-svid")
	}

	return methods
}
