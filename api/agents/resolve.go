package agents

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// A resolution is the body of POST /agents/resolve: Agent Semantic Resolution (cui 6)
// goes from an intent, its context and a policy to agents and how to invoke them. It
// ranks registrations and asks no agent anything (AI-037).
type resolution struct {
	request   discovery.Request
	need      index.Requirements
	protocols []string // allowed, in order of preference; empty for any
	ignored   []string // unknown members of the context
}

// Resolve answers POST /agents/resolve.
func (h *Handler) Resolve(w http.ResponseWriter, call *request.Call) error {
	if call.Anonymous() {
		return h.Reader.Guard.Unauthenticated("Anonymous callers can't resolve an intent.", nil) // AI-039
	}

	ask, err := span.Get(call.Context(), span.Parse, func() (*resolution, error) { return readResolution(w, call) })
	if err != nil {
		return err
	}

	frozen := h.Frozen()
	query := h.Reader.Guard.Question(call, &ask.request)
	query.Where = func(entry *directory.Entry) string {
		if slices.Contains(frozen, entry.Origin) {
			return "frozen"
		}

		return ask.need.Unmet(entry)
	}

	result, err := h.Reader.Guard.Rank(call, h.Finder.Find, query)
	if err != nil {
		return err
	}

	return span.Do(call.Context(), span.Render, func(step span.Span) error {
		step.Items(len(result.Candidates))
		response.NoStore(w)

		return response.Answer(w, call, "application/json", h.appendResolution(nil, call, ask, result))
	})
}

// readResolution reads and parses the body of a request.
func readResolution(w http.ResponseWriter, call *request.Call) (*resolution, error) {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return nil, err
	}

	return parseResolution(body)
}

// parseResolution reads a request. Unknown members of its policy are refused: to ignore a
// demand would let agents through that it was to keep out. Unknown members of its context
// are ignored with a warning.
func parseResolution(body []byte) (*resolution, error) {
	form, err := parseForm(body)
	if err != nil {
		return nil, err
	}

	ask := &resolution{}
	ranked := &ask.request
	ranked.Query = parseQuestion(form, "intent")
	ranked.Limit = parseTop(form)
	ranked.Detail = discovery.DetailSummary

	ranked.IncludeEvidence = true
	if ranked.Query == "" {
		form.refuse("intent", "intent is missing; say in words what is to be done.")
	}

	ranked.Plain = !form.flag("diversity", true)

	in := form.object("context")
	ask.need = index.Requirements{Capabilities: in.texts("capabilities"), Languages: parseLanguages(in)}
	ranked.RequiredTags = asTags(ask.need.Capabilities)
	ranked.PreferredTags = asTags(in.texts("tags"))
	ranked.Constraints.Regions = in.texts("region")
	ask.ignored = in.unknown()

	policy := form.object("policy")
	ask.parsePolicy(policy)
	form.refuseMisplaced(in)
	form.refuseMisplaced(policy)

	return ask, form.err()
}

// parsePolicy reads the agents that the caller trusts.
func (ask *resolution) parsePolicy(policy form) {
	constraints := &ask.request.Constraints
	constraints.MaxAge = policy.number("max_age_seconds", 0, -1)
	constraints.MinVerification = parseVerification(policy)
	ask.protocols = policy.texts("allowed_protocols")
	ask.request.Protocols = ask.protocols
	ask.request.ExcludedTags = asTags(policy.texts("excluded_tags"))

	for _, name := range policy.texts("allowed_domains") {
		if td, err := spiffeid.TrustDomainFromString(name); err != nil || td.Name() != name {
			policy.refuse("allowed_domains", "allowed_domains must be trust domains, got %.100q.", name)
		}

		constraints.Origins = append(constraints.Origins, name)
	}

	for _, owner := range policy.texts("allowed_owners") {
		if _, err := directory.ParseIdentity(owner); err != nil {
			policy.refuse("allowed_owners",
				"allowed_owners must be identities such as spiffe://DOMAIN/PATH, got %.100q.", owner)
		}

		constraints.Owners = append(constraints.Owners, owner)
	}

	if unknown := policy.unknown(); len(unknown) > 0 {
		policy.refuse(unknown[0], "A policy has no member %.100q. Its members are verified, min_verification, "+
			"max_age_seconds, allowed_domains, allowed_owners, allowed_protocols and excluded_tags.", unknown[0])
	}
}

// parseVerification reads the least verification that an agent's provenance must have.
func parseVerification(policy form) discovery.Verification {
	least := discovery.Pending
	if policy.flag("verified", false) {
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

	policy.refuse("min_verification", "min_verification must be pending, verified, logged or witnessed, got %.40q.",
		asked)

	return least
}

// demands are the request's own names of the finder's filters.
var demands = map[string]string{
	"required_tags":           "capabilities",
	"origins":                 "allowed_domains",
	"owners":                  "allowed_owners",
	"protocols":               "allowed_protocols",
	"max_results_age_seconds": "max_age_seconds",
}

// appendResolution appends the answer. Excluded agents are counted by the demand that
// they did not meet, among those that the caller may see. They are not named: the answer
// says that there are suspended or frozen agents, but not which (AI-038).
func (h *Handler) appendResolution(
	data []byte, call *request.Call, ask *resolution, result *discovery.Result,
) []byte {
	language := len(ask.need.Languages) > 0
	data = strictjson.AppendList(append(data, `{"candidates":`...), result.Candidates,
		func(b []byte, x discovery.Candidate) []byte {
			x.Entry = h.Reader.Guard.Mark(call, x.Entry)
			return h.Reader.Render.AppendResolved(b, &x, ask.protocols, language)
		})

	excluded := map[string]int{}
	for reason, n := range result.Excluded {
		if demand, ok := demands[reason]; ok {
			reason = demand
		}

		excluded[reason] += n
	}

	data = append(strictjson.AppendRaw(data, "excluded", nil), '{')
	for _, reason := range slices.Sorted(maps.Keys(excluded)) {
		data = strictjson.AppendUint(data, reason, uint64(excluded[reason]))
	}

	data = append(data, '}')

	warnings := slices.Clone(result.Warnings)
	for _, name := range ask.ignored {
		warnings = append(warnings, strings.ToValidUTF8("the context's member "+name+" is unknown and was ignored",
			"\uFFFD"))
	}

	return append(strictjson.AppendStrings(strictjson.AppendRaw(data, "warnings", nil), warnings), '}', '\n')
}
