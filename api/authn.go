package api

import (
	"strings"

	"github.com/roster-mesh/roster/api/catalog"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// checkCredential refuses a credential that proves the caller's identity, but is too weak
// for the route: one for reads alone, and for operators' changes everything but a client
// certificate.
func checkCredential(call *request.Call, who audience) error {
	// A snapshot has everything, so saving one is treated as a change.
	changes := !call.Reads() || who.action == "snapshot.read"

	switch {
	case who.calls && call.Credential.ReadOnly:
		return directory.Refuse(directory.Forbidden,
			"the token of %s may be used for reads only, and invoking an agent is not "+
				"a read. Use a client certificate, or a token that is bound to a certificate or a key", call.Identity)
	case who.level == levelIdentified && call.Credential.ReadOnly:
		return directory.Refuse(directory.Forbidden,
			"the token of %s may be used for reads only. For changes, use a client "+
				"certificate, or a token that is bound to a certificate or a key", call.Identity)
	case who.level == levelOperator && changes && (call.Credential.ReadOnly || call.Credential.Token):
		return directory.Refuse(directory.Forbidden,
			"%s authenticated with a token. Operators' changes, and snapshots, need a client certificate",
			call.Identity)
	}

	return nil
}

// refuseGateway refuses requests that a gateway sends, of whatever domain, by its identity
// or by the field Via that it adds. Its caller and a registrant decide them: an agent that is
// registered at the URL of a directory would act there as that gateway. The gateway of
// another domain may invoke an agent here, since crawled documents name agents so; a gateway
// of this domain, or a third one, would be a loop. Nodes and operators use no intermediary.
func (s *Server) refuseGateway(call *request.Call, who audience) error {
	gateways := invoke.Gateways(call.Header)
	caller, _ := call.Identity.SPIFFE()
	isGateway := gateways > 0 || strings.HasPrefix(caller.Path(), directory.GatewayPath)

	switch {
	case (who.level == levelNode || who.level == levelOperator) && call.Header.Get("Via") != "":
		return directory.Refuse(directory.Forbidden,
			"this request came through an intermediary (Via), and this route is for nodes or operators themselves")
	case strings.HasPrefix(caller.Path(), directory.SourcePath):
		return directory.Refuse(directory.Forbidden,
			"%s is the account of a followed source, which no caller can present", caller)
	case !isGateway || who.calls && gateways <= 1 && caller.TrustDomain() != s.cfg.Domain:
		return nil
	}

	return directory.Refuse(directory.Forbidden, "this request came through a gateway, which may only invoke agents: "+
		"not for a gateway of %s, and not through two others", s.cfg.Domain)
}

// challenges are those of a 401: one for each authentication method in a header. Client
// certificates have no scheme (Mutual is RFC 8120's, for passwords), but a challenge must
// be there (RFC 9110, 15.5.2). So WPT, which has no parameters, is always named; the
// problem's detail says which methods are accepted.
func (s *Server) challenges(call *request.Call) []string {
	accepted := s.cfg.AcceptedCredentials

	list := []string{"WPT"}
	if len(accepted.Issuers) == 0 && !accepted.JWTSVID {
		return list
	}

	bearer := `Bearer realm="` + s.cfg.Domain.Name() + `"`
	if len(accepted.Issuers) > 0 {
		bearer += `, resource_metadata="` + s.cfg.PublicURL + catalog.ProtectedResourcePath + `"` // RFC 9728, 5.1
	}

	if tokens, err := request.TokensOf(call.Request); err == nil && tokens.Bearer != "" {
		bearer += `, error="invalid_token"` // RFC 6750, 3.1
	}

	return append(list, bearer)
}
