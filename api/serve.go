package api

import (
	"net/http"
	"strconv"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// serve takes a request through everything that comes before its handler: who calls, how
// often, whether the route is for that caller, how fresh the state must be, and whether the
// node has capacity.
func (s *Server) serve(w http.ResponseWriter, call *request.Call, r *http.Request, route route) (err error) {
	call.Request = r
	if call.Vars, err = parsePath(r); err != nil {
		return err
	}

	call.Params = request.ParseParams(r.URL.RawQuery)

	if err := s.admit(w, call, route.who); err != nil {
		return err
	}

	if route.who.level == levelReader {
		if err := s.freshness.ensure(w, call); err != nil {
			return err
		}
	}

	// A request with a body waits for a slot once that is read.
	call.Slot = s.overload.Slot(route.who.work, route.who.bare)
	defer call.Slot.Release()

	if request.HasNoBody(r) {
		if err := call.Slot.Take(r.Context()); err != nil {
			return err
		}
	}

	return route.handle(w, call)
}

// admit authenticates the caller, counts the request, and checks that the route is for the
// caller. A request is counted before anything else is decided about it.
func (s *Server) admit(w http.ResponseWriter, call *request.Call, who audience) error {
	// A page of another site makes a browser present its user's client certificate.
	if err := s.browsers.Check(call.Request); err != nil {
		return directory.Refuse(directory.Forbidden, "Pages of other sites may not change anything here: %w", err)
	}

	var invalid error
	if who.level != levelAnyone {
		var credential request.Credential
		if credential, invalid = s.identify(call); invalid == nil {
			call.Identity = credential.Identity
			call.Credential = credential
		}
	}

	class := who.class
	if invalid != nil && who.level == levelTool { // no tool will make a request of its own
		class = admission.Reads
	}

	if err := s.limiter.Pace(w.Header(), call.Caller(), class); err != nil {
		return err
	}

	if err := s.refuseGateway(call, who); err != nil || who.level == levelAnyone || who.level == levelNode {
		return err
	}

	if invalid != nil {
		return s.guard.Unauthenticated("The credential is invalid.", invalid)
	}

	if call.Anonymous() && who.level != levelReader && who.level != levelTool {
		return s.guard.Unauthenticated("", nil)
	}

	if err := checkCredential(call, who); err != nil {
		return err
	}

	if who.level == levelOperator {
		return s.authoriseOperator(w, call, who.action)
	}

	return nil
}

// authoriseOperator asks policy whether the caller may do an operator's action.
func (s *Server) authoriseOperator(w http.ResponseWriter, c *request.Call, action string) error {
	decision := s.cfg.Policy.Operate(c.Identity, action)
	if err := access.Require(c, decision, "%s may not do %q", c.Identity, action); err != nil {
		return err
	}

	if s.cfg.Operator != nil {
		w.Header().Set("X-Roster-Policy", strconv.FormatUint(s.cfg.Operator.Policy().Version, 10))
	}

	return nil
}
