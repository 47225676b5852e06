package api

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// An access says who may call a route.
type access struct {
	level  level
	class  Class  // whose quota a request counts against
	action string // of an operator's route
	stream bool   // the answer has no end, so there is no HEAD of it
	calls  bool   // it calls an agent
	work   work   // what a request is under overload
	bare   work   // … of one without a body, where that is something else
}

type level int

const (
	levelAnyone     level = iota // nobody is asked who they are
	levelReader                  // policy filters what is shown, to anonymous callers too
	levelIdentified              // a verified identity
	levelOperator                // a verified identity that policy lets operate
	levelNodes                   // decided by the handler itself
	levelTools                   // by the routes that the tools ask
)

var (
	anyone     = access{level: levelAnyone, class: Public}
	guest      = access{level: levelAnyone, class: Writes}
	reader     = access{level: levelReader, class: Reads, work: lookupWork}
	watcher    = access{level: levelReader, class: Reads, stream: true}
	querier    = access{level: levelReader, class: Queries, work: queryWork}
	invoker    = access{level: levelReader, class: Invocations, calls: true}
	identified = access{level: levelIdentified, class: Writes, work: registrationWork}
	updater    = access{level: levelIdentified, class: Writes, work: registrationWork, bare: refreshWork}
	refresher  = access{level: levelIdentified, class: Writes, work: refreshWork}
	nodes      = access{level: levelNodes, class: Federation}
	toolUser   = access{level: levelTools} // what a tool asks for has a class
)

func operator(action string) access {
	return access{level: levelOperator, class: Operations, action: action}
}

// admit finds out who calls, whether they ask too often, and whether the route is
// for them. It fills c.id and c.commissions.
func (s *Server) admit(w http.ResponseWriter, c *call, who access) error {
	// A page of another site has a browser show its user's client certificate.
	if err := s.pages.Check(c.Request); err != nil {
		return directory.Refuse(directory.Forbidden, "A page of another site changes nothing here: %w", err)
	}
	if who.level == levelAnyone {
		return cmp.Or(s.pace(w, c, who.class), s.ofGateway(c, who))
	}
	cred, err := s.identify(c)
	if err == nil {
		c.id, c.credential = cred.Identity, cred
	}
	id := cred.Identity
	class := who.class
	if err != nil && who.level == levelTools { // no tool will ask for anything
		class = Reads
	}
	if err := s.pace(w, c, class); err != nil {
		return err
	}
	if err := s.ofGateway(c, who); err != nil || who.level == levelNodes {
		return err
	}
	if err != nil {
		return s.challenge("The credential that came with the request does not hold. ", err)
	}
	c.commissions = func() bool { return !id.IsZero() && s.cfg.Policy.Commission(id) }
	if id.IsZero() && who.level != levelReader && who.level != levelTools {
		return s.challenge("", nil)
	}
	if err := s.suffices(c, who); err != nil {
		return err
	}
	if who.level == levelOperator {
		err := c.denied(s.cfg.Policy.Operate(id, who.action), "%s may not do what %q asks for", id, who.action)
		if err == nil && s.cfg.Operator != nil {
			w.Header().Set("X-Roster-Policy", strconv.FormatUint(s.cfg.Operator.Policy().Version, 10))
		}
		return err
	}
	return nil
}

// ofGateway refuses what a node's gateway sends. It comes with the node's identity and
// has what its caller wants, so that whoever registers an agent at a directory's URL
// would be that node there. For an agent of another domain that is what the gateway
// was asked for, since a crawled document may name it so; to be asked again by an agent
// of the own domain, or through a third gateway, is how loops begin.
func (s *Server) ofGateway(c *call, who access) error {
	n := invoke.Gateways(c.Header)
	caller, _ := c.id.SPIFFE()
	reads := c.Method == http.MethodGet || c.Method == http.MethodHead // which is not how agents are called
	if n == 0 || reads || n == 1 && who.calls && caller.TrustDomain() != s.cfg.Domain {
		return nil
	}
	return directory.Refuse(directory.Forbidden, "A gateway calls agents, and this is a directory: no agent is invoked here for a gateway of %s, or through two others, and nothing else is done for one.", s.cfg.Domain)
}

// identify returns who calls: of a tool's request, who called the tool.
func (s *Server) identify(c *call) (Credential, error) {
	if outer, ok := c.Context().Value(behalfKey{}).(*call); ok {
		return outer.credential, nil
	}
	return s.cfg.Identify(c.Request)
}

// suffices refuses a credential that proves who calls, and not enough for what is
// asked: one that is for reads alone, and for an operator's changes everything but
// a client certificate.
func (s *Server) suffices(c *call, who access) error {
	// Who has a snapshot has all that there is.
	writes := c.Method != http.MethodGet && c.Method != http.MethodHead || who.action == "snapshot.read"
	switch {
	case who.calls && c.credential.ReadOnly:
		return directory.Refuse(directory.Forbidden, "%s is known by a token that is good for reads alone; to invoke an agent is none: use a client certificate, or a token that is bound to one or to a key.", c.id)
	case who.level == levelIdentified && c.credential.ReadOnly:
		return directory.Refuse(directory.Forbidden, "%s is known by a token that is good for reads alone; changes take a client certificate, or a token that is bound to one or to a key.", c.id)
	case who.level == levelOperator && writes && (c.credential.ReadOnly || c.credential.Token):
		return directory.Refuse(directory.Forbidden, "%s is known by a token; an operator's changes, and snapshots, take a client certificate.", c.id)
	}
	return nil
}

// challenge is the 401 of a request without a credential, or with one that
// doesn't hold.
func (s *Server) challenge(before string, cause error) error {
	e := directory.Refuse(directory.Unauthenticated,
		"%sThis needs a verified identity: present an X.509-SVID of %s or of a peer domain as TLS client certificate, or show it another way that /.well-known/ad lists.", before, s.cfg.Domain)
	e.Err = cause
	var told *directory.Error
	if errors.As(cause, &told) {
		e.Detail = told.Detail
	}
	return e
}

// denied turns a decision into a refusal that names the policies that decided,
// or nil where it allows.
func (c *call) denied(d directory.Decision, format string, args ...any) error {
	c.decided = d.Policies
	if d.Allow {
		return nil
	}
	e := directory.Refuse(directory.Forbidden, format, args...)
	r := &problem.Refusal{Err: e}
	if len(d.Policies) == 0 {
		e.Detail += "; no policy permits it"
		return r
	}
	names := slices.Sorted(slices.Values(d.Policies))
	e.Detail += "; decided by " + strings.Join(names, ", ")
	r.Members = append(r.Members, strictjson.Member{Name: "policies", Value: appendStrings(nil, names)})
	return r
}

// sight is policy's word on what c's caller sees of e, if anything. Who owns a
// registration, and who may change any, sees all of it.
func (s *Server) sight(c *call, e *directory.Entry) (sight directory.Redaction, ok bool) {
	if s.mayWrite(c, e) {
		return sight, true
	}
	d := s.cfg.Policy.Read(c.id, e)
	return d.Redaction, d.Allow
}

// mayRead is whether c's caller sees anything of e.
func (s *Server) mayRead(c *call, e *directory.Entry) bool {
	_, ok := s.sight(c, e)
	return ok
}

// showTo is how c's caller sees entries.
func (s *Server) showTo(c *call) index.Viewer {
	return func(e *directory.Entry) *directory.Entry {
		if sight, ok := s.sight(c, e); ok {
			return kinds.Redact(e, sight)
		}
		return nil
	}
}

// mayWrite is whether c's caller owns e, or is a commissioning tool (AD-002).
func (s *Server) mayWrite(c *call, e *directory.Entry) bool {
	return s.isOwn(e) && !c.id.IsZero() && (e.Owner == c.id || c.commissions())
}

// isOwn is whether e is of this node's domain.
func (s *Server) isOwn(e *directory.Entry) bool { return e.Origin == s.cfg.Domain }
