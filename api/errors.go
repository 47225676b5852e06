package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// clientGone is what metrics and the log have as the status of a request whose
// client went away before there was an answer. It reaches nobody.
const clientGone = 499

// fail answers the request with err's problem body. Where err is that the client
// has gone, there is nobody to answer, and the fault is not the directory's.
func (s *Server) fail(w http.ResponseWriter, c *call, err error) {
	if errors.Is(err, context.Canceled) && errors.Is(c.Context().Err(), context.Canceled) && directory.ProblemOf(err) == directory.Internal {
		w.WriteHeader(clientGone)
		return
	}

	refused := problem.Explain(err)
	status := refused.Rule().Status
	switch {
	case status == http.StatusInternalServerError:
		s.log.Error("request failed", "request_id", c.requestID, "detail", refused.Err.Detail, "err", refused.Err.Err)
	case refused.Err.Problem == directory.Overloaded:
		c.shed = true // and logged by the overload, for many requests at once
	case status > http.StatusNotImplemented:
		s.log.Warn("request not answered", "request_id", c.requestID, "problem", string(refused.Err.Problem), "detail", refused.Err.Detail, "err", refused.Err.Err)
	}

	h := w.Header()
	for _, name := range []string{"Etag", "Last-Modified", "Location", "Content-Location", "Link", "Sunset"} {
		h.Del(name) // of the answer that this one takes the place of
	}
	refused.SetHeader(h)
	if status == http.StatusUnauthorized {
		h["Www-Authenticate"] = s.challenges(c)
	}
	if refused.Err.Problem == directory.Replayed {
		s.cfg.Refused("replayed")
	}
	write(w, c.Request, status, problem.ContentType, refused.Body(s.cfg.PublicURL, c.requestID))
}

// problemPage explains one problem to whoever follows its type (AD-033).
func (s *Server) problemPage(w http.ResponseWriter, c *call) error {
	name := directory.Problem(c.vars["name"])
	rule := problem.RuleOf(name)
	if rule.Status == 0 {
		return directory.Refuse(directory.NotFound, "There is no problem called %.100q.", name)
	}
	b := strictjson.AppendText([]byte{'{'}, "type", problem.TypeURI(s.cfg.PublicURL, name))
	b = strictjson.AppendText(b, "title", rule.Title)
	b = strictjson.AppendUint(b, "status", uint64(rule.Status))
	b = append(strictjson.AppendText(b, "explanation", rule.Explanation), '}', '\n')
	return sendPublic(w, c, "application/json", b)
}
