package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// Agent Semantic Resolution (cui 6): from an intent, its context and a policy to
// agents, and how to invoke them. It ranks what is registered, asks no agent
// anything, and leaves discovery and invocation as they are (AI-037).

// A resolution is the body of POST /agents/resolve.
type resolution struct {
	request   discovery.Request
	need      index.Requirements
	protocols []string // allowed, in order of preference; any where there are none
	ignored   []string // members of the context that mean nothing here
}

// resolve answers POST /agents/resolve.
func (s *Server) resolve(w http.ResponseWriter, c *call) error {
	if c.id.IsZero() {
		return s.challenge("To have agents resolved is not for everybody. ", nil) // AI-039
	}
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	ask, err := parseResolution(body)
	if err != nil {
		return err
	}
	var frozen []spiffeid.TrustDomain
	if s.cfg.Frozen != nil {
		frozen = s.cfg.Frozen()
	}
	q := s.question(c, &ask.request)
	q.Where = func(e *directory.Entry) string {
		if slices.Contains(frozen, e.Origin) {
			return "frozen"
		}
		return ask.need.Unmet(e)
	}
	result, err := s.cfg.Finder.Find(c.Context(), q)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, c, "application/json", s.resolved(ask, result))
}

// parseResolution reads a request. What it doesn't know of a policy is refused: a
// demand that is silently dropped lets agents through that it was to keep out.
// What it doesn't know of a context is told as a warning.
func parseResolution(body []byte) (*resolution, error) {
	f, err := parseForm(body)
	if err != nil {
		return nil, err
	}
	ask := &resolution{}
	r := &ask.request
	r.Query, r.Limit, r.Detail, r.IncludeEvidence = parseQuestion(f, "intent"), parseTop(f), discovery.DetailSummary, true
	if r.Query == "" {
		f.refuse("intent", "intent is missing: say in words what is to be done")
	}
	r.Plain = !f.flagOr("diversity", true)
	in := f.object("context")
	ask.need = index.Requirements{Capabilities: in.texts("capabilities"), Languages: parseLanguages(in)}
	r.RequiredTags, r.PreferredTags = asTags(ask.need.Capabilities), asTags(in.texts("tags"))
	r.Constraints.Regions = in.texts("region")
	ask.ignored = in.unknown()

	policy := f.object("policy")
	r.Constraints.MaxAge = policy.number("max_age_seconds", 0, -1)
	r.Constraints.MinVerification = parseVerification(policy)
	ask.protocols = policy.texts("allowed_protocols")
	r.Protocols, r.ExcludedTags = ask.protocols, asTags(policy.texts("excluded_tags"))
	for _, name := range policy.texts("allowed_domains") {
		if td, err := spiffeid.TrustDomainFromString(name); err != nil || td.Name() != name {
			policy.refuse("allowed_domains", "%.100q is not a domain", name)
		}
		r.Constraints.Origins = append(r.Constraints.Origins, name)
	}
	for _, owner := range policy.texts("allowed_owners") {
		if _, err := directory.ParseIdentity(owner); err != nil {
			policy.refuse("allowed_owners", "%.100q is not an identity such as spiffe://DOMAIN/PATH", owner)
		}
		r.Constraints.Owners = append(r.Constraints.Owners, owner)
	}
	if unknown := policy.unknown(); len(unknown) > 0 {
		policy.refuse(unknown[0], "a policy has no %.100q: it has verified, min_verification, max_age_seconds, allowed_domains, allowed_owners, allowed_protocols and excluded_tags", unknown[0])
	}
	f.misplaced(in)
	f.misplaced(policy)
	return ask, f.err()
}

// parseVerification reads how sure it must be where an agent comes from.
func parseVerification(policy form) discovery.Verification {
	least := discovery.Pending
	if policy.flag("verified") {
		least = discovery.Verified
	}
	asked := policy.text("min_verification")
	if asked == "" {
		return least
	}
	for v := discovery.Pending; v <= discovery.Witnessed; v++ {
		if v.String() == asked {
			return max(v, least)
		}
	}
	policy.refuse("min_verification", "min_verification is %.40q; it is pending, verified, logged or witnessed", asked)
	return least
}

// demands are the request's own words for what the finder filters by.
var demands = map[string]string{
	"required_tags": "capabilities", "origins": "allowed_domains", "owners": "allowed_owners", "protocols": "allowed_protocols",
	"max_results_age_seconds": "max_age_seconds",
}

// resolved writes the answer. What is excluded is counted by the demand that it did not
// meet, of what the caller may see alone, and nobody is named: that there are agents
// which are suspended, or frozen with their origin, is told, and not which (AI-038).
func (s *Server) resolved(ask *resolution, result *discovery.Result) []byte {
	b := list([]byte(`{"candidates":`), result.Candidates, func(b []byte, x discovery.Candidate) []byte {
		return s.appendResolved(b, ask, &x)
	})
	excluded := map[string]int{}
	for reason, n := range result.Excluded {
		if word, ok := demands[reason]; ok {
			reason = word
		}
		excluded[reason] += n
	}
	b = append(strictjson.AppendRaw(b, "excluded", nil), '{')
	for _, reason := range slices.Sorted(maps.Keys(excluded)) {
		b = strictjson.AppendUint(b, reason, uint64(excluded[reason]))
	}
	b = append(b, '}')
	warnings := slices.Clone(result.Warnings)
	for _, name := range ask.ignored {
		warnings = append(warnings, strings.ToValidUTF8("the context's "+name+" has no meaning here", "\uFFFD"))
	}
	return append(appendStrings(strictjson.AppendRaw(b, "warnings", nil), warnings), '}', '\n')
}

// appendResolved appends a candidate: who it is, how to invoke it, why it is one,
// and who vouches for it.
func (s *Server) appendResolved(b []byte, ask *resolution, x *discovery.Candidate) []byte {
	e := x.Entry
	p := projection(e)
	way := preferred(p, ask.protocols)
	b = strictjson.AppendText(append(b, '{'), "id", publicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "endpoint", way.Endpoint)
	b = appendInvocation(strictjson.AppendRaw(b, "invocation", nil), e, p, way)
	b = appendNumber(b, "score", x.Score)
	b = appendReasons(strictjson.AppendRaw(b, "reasons", nil), x)
	if flags := x.Flags.Names(); len(flags) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "flags", nil), flags)
	}
	b = appendDeclared(b, p, len(ask.need.Languages) > 0)
	return s.appendMarks(b, e, look{registrant: true}, directory.KindAIDIP)
}

// preferred is the binding to invoke an agent by: of the protocol that is allowed
// first, or its own first one.
func preferred(p *directory.Projection, protocols []string) directory.Binding {
	for _, protocol := range protocols {
		for _, b := range p.Bindings {
			if b.Protocol == protocol {
				return b
			}
		}
	}
	if len(p.Bindings) > 0 {
		return p.Bindings[0]
	}
	way := directory.Binding{Endpoint: p.Base}
	if len(p.Protocols) > 0 {
		way.Protocol = p.Protocols[0]
	}
	return way
}

// appendInvocation appends how an agent is invoked. With several operations the
// schema is of none of them, and each has its own (spec/views.md, 12).
func appendInvocation(b []byte, e *directory.Entry, p *directory.Projection, way directory.Binding) []byte {
	b = append(b, '{')
	if strings.HasPrefix(way.Endpoint, "http") {
		b = strictjson.AppendText(b, "method", http.MethodPost) // all that is spoken over HTTP is invoked by it
	}
	b = appendOptional(b, "transport", way.Protocol)
	b = appendOptional(b, "envelope", way.Envelope)
	tools := toolsOf(p)
	switch len(tools) {
	case 0:
		b = strictjson.AppendRaw(b, "schema", inputsOf(e))
	case 1:
		b = strictjson.AppendText(b, "operation", operationName(tools[0]))
		b = strictjson.AppendRaw(b, "schema", schemaOr(tools[0].InputSchema))
	default:
		b = strictjson.AppendRaw(b, "schema", anyObject)
		b = list(strictjson.AppendRaw(b, "operations", nil), tools, func(b []byte, t directory.Capability) []byte {
			b = strictjson.AppendText(append(b, '{'), "name", operationName(t))
			return append(strictjson.AppendRaw(b, "schema", schemaOr(t.InputSchema)), '}')
		})
	}
	switch {
	case p.Authentication != nil:
		b = strictjson.AppendRaw(b, "auth", p.Authentication)
	case e.Document.Kind() == directory.KindAIDIP && !e.Redacted: // AI-022
		b = strictjson.AppendRaw(b, "auth", []byte(`{"type":"none"}`))
	}
	return append(b, '}')
}

// inputsOf is the schema of what an agent without operations takes.
func inputsOf(e *directory.Entry) []byte {
	if e.Document.Kind() == directory.KindAIDIP {
		if inputs, ok := strictjson.FindMember(e.Document.Members(), "inputs"); ok {
			return inputs
		}
	}
	return anyObject
}

// appendReasons appends what of a candidate matches the intent: its tags, its
// examples, and the intent's words with the fields that they stand in.
func appendReasons(b []byte, x *discovery.Candidate) []byte {
	b = append(b, '[')
	reason := func(what, value string, fields []string) {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = strictjson.AppendText(append(b, '{'), "matched", what)
		b = strictjson.AppendText(b, "value", value)
		if fields != nil {
			b = appendStrings(strictjson.AppendRaw(b, "fields", nil), fields)
		}
		b = append(b, '}')
	}
	for _, tag := range x.MatchedTags {
		reason("tag", tag, nil)
	}
	for _, example := range x.MatchedExamples {
		reason("example", example.ID, nil)
	}
	if x.Evidence != nil {
		for _, t := range x.Evidence.Terms {
			reason("word", t.Text, slices.Sorted(maps.Keys(t.Fields)))
		}
	}
	return append(b, ']')
}
