package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// clientGone is the status, in metrics and the log, of a request whose client went away
// before it was answered. It is never sent.
const clientGone = 499

// replacedHeaders belong to the answer that a refusal replaces.
var replacedHeaders = []string{"Etag", "Last-Modified", "Location", "Content-Location", "Link", "Sunset"}

// fail answers a call with err's problem. If err is that the client has gone, there is no
// answer, and the fault is not the directory's.
func (s *Server) fail(w http.ResponseWriter, c *request.Call, err error) {
	if errors.Is(err, context.Canceled) && errors.Is(c.Context().Err(), context.Canceled) &&
		directory.ProblemOf(err) == directory.Internal {
		w.WriteHeader(clientGone)
		return
	}

	refused := problem.Explain(err)
	s.logRefusal(c, refused)

	h := w.Header()
	for _, name := range replacedHeaders {
		h.Del(name)
	}
	refused.SetHeader(h)
	if refused.Rule().Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = s.challenges(c)
	}
	if refused.Err.Problem == directory.Replayed {
		s.cfg.CredentialRefused("replayed")
	}

	body := refused.Body(s.cfg.PublicURL, c.RequestID)
	response.Write(w, c.Request, refused.Rule().Status, problem.ContentType, body)
}

// logRefusal logs a refusal that is the node's fault. The overload logs those that it
// sheds, many requests in one line.
func (s *Server) logRefusal(c *request.Call, refused *problem.Refusal) {
	attrs := []any{"request_id", c.RequestID, "problem", string(refused.Err.Problem), "detail", refused.Err.Detail}
	if refused.Err.Err != nil {
		attrs = append(attrs, "err", refused.Err.Err)
	}

	switch status := refused.Rule().Status; {
	case status == http.StatusInternalServerError:
		s.log.Error("request failed", attrs...)
	case refused.Err.Problem == directory.Overloaded:
		c.Shed = true
	case status > http.StatusNotImplemented:
		s.log.Warn("request not answered", attrs...)
	}
}
