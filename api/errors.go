package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/roster-mesh/roster/api/catalog"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// clientGone is the status, in metrics and the log, of a request that got no answer, because its client had gone or
// reads no answers. It is never sent.
const clientGone = 499

// replacedHeaders belong to the answer that a refusal replaces.
var replacedHeaders = []string{"Etag", "Last-Modified", "Location", "Content-Location", "Link", "Sunset"}

// fail answers a call with err's problem. If err is that the client has gone, there is no
// answer, and the fault is not the directory's.
func (s *Server) fail(w http.ResponseWriter, call *request.Call, err error) {
	if errors.Is(err, context.Canceled) && errors.Is(call.Context().Err(), context.Canceled) &&
		directory.ProblemOf(err) == directory.Internal {
		w.WriteHeader(clientGone)
		return
	}

	refused := problem.Explain(err)
	call.Refusal = refused

	// The handler may have set fields about an answer that is not sent now.
	header := w.Header()
	for _, name := range replacedHeaders {
		header.Del(name)
	}

	refused.SetHeader(header)

	if refused.Rule().Status == http.StatusUnauthorized {
		header["Www-Authenticate"] = s.challenges(call)
	}

	if refused.Err.Problem == directory.Replayed {
		s.cfg.CredentialRefused("replayed")
	}

	body := refused.Body(s.cfg.PublicURL, call.RequestID)
	response.Write(w, call.Request, refused.Rule().Status, problem.ContentType, body)
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
