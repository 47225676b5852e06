package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/mcp"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// answer takes every request to its answer: it finds the request's route, admits it, and has
// the route's handler answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	call := request.Of(r.Context())
	call.Request = r

	route := s.match(call)
	call.Level = route.log

	invalid, leave, err := s.admit(w, call, &route)
	s.trace(call, &route)

	if err == nil {
		defer leave()

		err = s.serve(w, call, &route, invalid)
	} else {
		// A client that reads no refusals must not have the node hold any number of them.
		defer s.holdRefusal(call)()
	}

	if err != nil {
		s.auditRefusal(call, &route, err)
		s.fail(w, call, err)
	}

	s.send(w, call)
}

// admit decides whether a call may begin (rule S1). Every request passes here, whether the
// table has a row for it or not, and nothing else is decided about it before: who calls,
// whether that caller has called too often, and whether its shares of the calls in progress
// and of the bytes of bodies allow one more. The handler reads the body later.
//
// invalid is the reason for which the credential of the call doesn't hold; the call counts
// as its address's then.
func (s *Server) admit(w http.ResponseWriter, call *request.Call, route *route) (invalid error, leave func(),
	err error) {
	call.Pools = s.pools

	// The call counts as its address's until its credential is verified.
	call.Party = s.parties.Of(directory.Identity{}, call.RemoteAddr)

	call.MaxBody = route.maxBody()
	if call.MaxBody == 0 {
		admission.Discard(w, call.Request)
	}

	if route.who.level != levelAnyone {
		if invalid, err = s.authenticate(call, route.who.class); err != nil {
			return nil, nil, err
		}
	}

	call.Party = s.parties.Of(call.Identity, call.RemoteAddr)

	// A tool's request was admitted with the message that called the tool, as a read.
	outer := mcp.Delegator(call)
	if outer == nil || route.who.class != toolUser.class {
		if err := s.limiter.Pace(w.Header(), call.Caller(), route.who.class); err != nil {
			// The next such request is refused before its token is verified, which costs more than a refusal.
			if !call.Identity.IsZero() && request.HasToken(call.Header) {
				s.limiter.Exceeded(limit.StrangerAt(call.RemoteAddr), call.Caller(), route.who.class)
			}

			return nil, nil, err
		}
	}

	if outer != nil {
		if route.who.pool == admission.RequestPool {
			// The outer call has a place in this pool already.
			return invalid, func() {}, nil
		}

		leave, err = s.pools.Take(route.who.pool, call.Caller(), 1)

		return invalid, leave, err
	}

	leave, err = s.takeShares(w, call, route)

	return invalid, leave, err
}

// authenticate verifies the credential of a call, unless too many of its address didn't
// hold, or the caller that it names goes on beyond its rate. invalid is the reason if this one
// doesn't hold.
func (s *Server) authenticate(call *request.Call, class admission.Class) (invalid, err error) {
	if outer := mcp.Delegator(call); outer != nil {
		// The outer call was authenticated, by a proof that may be good once.
		call.Identity = outer.Identity
		call.Credential = outer.Credential

		return nil, nil
	}

	sender, hasToken := call.Party, request.HasToken(call.Header)
	if hasToken {
		claimed := s.parties.Of(s.cfg.Claimed(call.Request), call.RemoteAddr)
		if err := s.limiter.Attempt(sender, claimed, class); err != nil {
			return nil, err
		}
	}

	credential, invalid := s.cfg.Identify(call.Request)
	if invalid != nil {
		if hasToken {
			s.limiter.Failed(sender)
		}

		return invalid, nil
	}

	// A node that is no member, or no more, is a stranger whatever its certificate (rule S7),
	// and counts as its address.
	if s.cfg.Stranger(credential.Identity) {
		return directory.Refuse(directory.Forbidden,
			"%s is no member of %s: a node has to join first", credential.Identity, s.cfg.Domain.Name()), nil
	}

	call.Identity = credential.Identity
	call.Credential = credential

	return nil, nil
}

// takeShares takes the resources that a call holds until leave is called: a place in the pool of its
// route, and the share of its body.
func (s *Server) takeShares(w http.ResponseWriter, call *request.Call, route *route) (leave func(), err error) {
	place, err := s.pools.Take(route.who.pool, call.Caller(), 1)
	if err != nil || call.MaxBody == 0 {
		return place, err
	}

	body, err := s.pools.OpenBody(w, call.Request, call.Caller(), call.MaxBody)
	if err != nil {
		place()
		return nil, err
	}

	call.Body = body

	return func() {
		body.Release()
		place()
	}, nil
}

// trace begins the span of a call, once it is known who calls. The caller's own trace is continued
// only for identities of the domain and for nodes of peers: others must not have a node record.
func (s *Server) trace(call *request.Call, route *route) {
	var trusted *limit.Caller
	if call.Identity.MemberOf(s.cfg.Domain) || route.who.level == levelNode && isNode(call.Identity) {
		trusted = &call.Party
	}

	ctx, begun := s.cfg.Tracer.Request(call.Context(), call.Arrived, call.Header, trusted)
	if !begun.IsRecorded() {
		return
	}

	call.Span = begun
	call.Request = call.WithContext(ctx)

	span.Past(ctx, span.Admit, call.Arrived, time.Now(), 0)
}

// isNode tells whether an identity is that of a domain's node (trust.md, "Identities").
func isNode(id directory.Identity) bool {
	spiffe, ok := id.SPIFFE()

	return ok && strings.HasPrefix(spiffe.Path(), directory.NodePath)
}

// serve takes an admitted call through everything else that comes before its handler:
// whether the route is for its caller, how fresh the state must be, and whether the node has
// capacity.
func (s *Server) serve(w http.ResponseWriter, call *request.Call, route *route, invalid error) error {
	call.Params = request.ParseParams(call.URL.RawQuery)
	call.AnswerHeader = w.Header()

	if err := s.authorise(w, call, route.who, invalid); err != nil {
		return err
	}

	if err := s.params.check(call, route); err != nil {
		return err
	}

	s.nameNodes(w, call)

	if route.who.level == levelReader {
		if err := s.freshness.ensure(w, call); err != nil {
			return err
		}
	}

	// A request with a body waits for a slot once that is read.
	call.Slot = s.overload.Slot(route.who.work, route.who.bare)
	defer call.Slot.Release()

	if call.MaxBody == 0 {
		if err := call.Slot.Take(call.Context()); err != nil {
			return err
		}
	}

	if err := route.handle(w, call); !errors.Is(err, request.ErrAnswered) {
		return err
	}

	return nil
}

// authorise checks that a route is for the caller.
func (s *Server) authorise(w http.ResponseWriter, call *request.Call, who audience, invalid error) error {
	// A page of another site makes a browser present its user's client certificate.
	if err := s.browsers.Check(call.Request); err != nil {
		return directory.Refuse(directory.Forbidden, "pages of other sites may not change anything here: %w", err)
	}

	if directory.ProblemOf(invalid) == directory.Forbidden {
		return invalid // a node that is no member
	}

	if err := s.refuseGateway(call, who); err != nil || who.level == levelAnyone || who.level == levelNode {
		return err
	}

	// Public documents and nodes' routes, above, don't depend on the credential.
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

// authoriseOperator asks policy whether the caller may do an operator's action.
func (s *Server) authoriseOperator(w http.ResponseWriter, c *request.Call, action string) error {
	decision := s.cfg.Policy.Operate(c.Identity, action)
	if err := access.Require(c, decision, "%s may not do %q%s", c.Identity, action, s.namesOperators()); err != nil {
		return err
	}

	w.Header().Set("X-Roster-Policy", strconv.FormatUint(s.cfg.Operator.Policy().Version, 10))

	return nil
}

// namesOperators says in a refusal who the operators are. Only the built-in policy is known here: a
// policy of the domain's own may choose others.
func (s *Server) namesOperators() string {
	if s.cfg.Operator.Policy().Version != 0 {
		return ""
	}

	return fmt.Sprintf(", because operators are %s/ops/* by the policy in force", s.cfg.Domain.IDString())
}

// nameNodes names the domain's other nodes to a caller of the domain who asks for them, so
// that a client finds another node when this one is away.
func (s *Server) nameNodes(w http.ResponseWriter, call *request.Call) {
	if call.Header.Get(wire.HeaderNodes) == "" {
		return
	}

	if id, ok := call.Identity.SPIFFE(); ok && id.TrustDomain() == s.cfg.Domain {
		w.Header().Set(wire.HeaderNodes, strings.Join(s.cfg.Nodes(), ", "))
	}
}

// holdRefusal takes a place for the refusal of a call that has no other, until release is called. If
// there is none, because its party reads no refusals, the call ends without an answer.
func (s *Server) holdRefusal(call *request.Call) (release func()) {
	if mcp.Delegator(call) != nil {
		return func() {}
	}

	release, err := s.pools.Take(admission.RefusalPool, call.Caller(), 1)
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	return release
}

// send waits until an answer has been sent, so that the call keeps its places until then (rule S15):
// net/http sends the end of an answer after the handler has returned, and waits for a client of HTTP/2 that
// opens no window. A connection of HTTP/1.1 has one answer, and its place among the connections.
func (s *Server) send(w http.ResponseWriter, call *request.Call) {
	if call.ProtoMajor < 2 || mcp.Delegator(call) != nil {
		return
	}

	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(response.WriteTime))
	_ = rc.Flush() // an error means that the client is gone
}
