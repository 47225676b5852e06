package api

import (
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// The descriptions of the routes, for people and for tools. A test holds them
// against the table, the sources and every answer that the tests see.

const about = `The directory of one trust domain (draft-jimenez-agent-directory-01), and of what its peers let it see.

Every GET answers HEAD too, unless it says otherwise, and every path OPTIONS. A method that a path does not have is answered with 405 and Allow, ` +
	`one that no path has with 501, a path that is none with 404: all with the problem body that is described with every operation. ` +
	`Unknown query parameters are ignored. Bodies are compressed where Accept-Encoding asks for gzip.`

// An operation is what is said of one route, besides what follows from who may
// call it.
type operation struct {
	summary    string
	parameters []string // keys of parameters
	body       []string // the schemas that it may be of
	optional   bool     // whether there may be no body
	media      string   // the body's media type, where it is no JSON and body is empty
	answers    []good
	problems   []directory.Problem
}

// A good answer is one that is no refusal, or one in another protocol's words.
type good struct {
	status              int
	what, schema, media string // media is application/json where it is empty
	also                string // another media type of the same
	headers             []string
}

// tag names who may call a route.
func (a access) tag() string {
	return map[level]string{
		levelAnyone: "anyone", levelReader: "readers", levelIdentified: "registrants", levelOperator: "operators", levelNodes: "nodes", levelTools: "tool users",
	}[a.level]
}

// problems are those of every route of this access.
func (a access) problems() []directory.Problem {
	ps := []directory.Problem{directory.Internal, problem.URITooLong, problem.HeaderTooLarge}
	switch a.level {
	case levelReader:
		ps = append(ps, directory.Unauthenticated, directory.RateLimited, directory.Unavailable, directory.Overloaded, directory.BadQuery, directory.PreconditionFailed)
		if a.stream || a.calls {
			ps = append(ps, directory.Replayed)
		}
		if a.class == Queries { // a POST, as a gateway might send it
			ps = append(ps, directory.Forbidden)
		}
	case levelIdentified:
		ps = append(ps, directory.Unauthenticated, directory.Replayed, directory.RateLimited, directory.BadRequest, directory.Forbidden,
			directory.PreconditionFailed, directory.Unavailable, directory.Overloaded, directory.Overtaken, directory.OutcomeUnknown, problem.Timeout)
	case levelOperator:
		ps = append(ps, directory.Unauthenticated, directory.RateLimited, directory.Forbidden)
	case levelTools:
		ps = append(ps, directory.Unauthenticated, directory.RateLimited, directory.BadRequest, directory.Forbidden, directory.TooLarge, problem.MediaType)
	case levelNodes:
		ps = append(ps, directory.Unauthenticated, directory.Forbidden, directory.BadRequest, directory.BadQuery, directory.NotFound, directory.TooLarge,
			problem.MediaType, directory.RateLimited, directory.Unavailable, problem.Upstream, problem.Timeout)
	default:
		ps = append(ps, directory.PreconditionFailed, directory.RateLimited)
	}
	return ps
}

// headers are those of every good answer of this access.
func (a access) headers() []string {
	switch a.level {
	case levelReader:
		return []string{"RateLimit", "RateLimit-Policy", "Roster-Index", "Roster-Stale", "Cache-Control", "Vary"}
	case levelIdentified, levelOperator, levelNodes:
		return []string{"RateLimit", "RateLimit-Policy"}
	case levelTools:
		return []string{"RateLimit", "RateLimit-Policy", "Cache-Control", "Vary"}
	case levelAnyone:
		return []string{"Cache-Control", "Vary"}
	}
	return nil
}

// published are the answers of a write that shows what it wrote.
func published(schema string) []good {
	headers := []string{"Location", "Content-Location", "ETag", "Roster-Index", "Sunset", "Cache-Control", "Vary"}
	return []good{
		{status: 201, what: "Registered.", schema: schema, headers: headers},
		{status: 200, what: "Replaced.", schema: schema, headers: headers},
	}
}

// publishProblems are the problems of registering, beside a document's own.
var publishProblems = append([]directory.Problem{directory.BadName, directory.NameTaken}, documentProblems...)

var (
	notModified = good{status: 304, what: "The client has it: If-None-Match names it.", headers: []string{"ETag"}}
	several     = good{status: 300, what: "Several peers have a registration of this id or name, and this domain has none: choose one.", schema: "listing", headers: []string{"Link"}}
)

// public describes a route for anyone whose answer is the same for everybody.
func public(summary, schema, media string, ps ...directory.Problem) operation {
	return operation{summary: summary, parameters: []string{"If-None-Match", "If-Match"}, problems: ps, answers: []good{
		{status: 200, what: summary, schema: schema, media: media, headers: []string{"ETag"}}, notModified,
	}}
}

// resource describes a read of one registration.
func resourceRead(what, schema, media string, headers ...string) operation {
	return operation{
		summary: what, parameters: []string{"consistency", "min", "wait", "If-None-Match", "If-Match"},
		answers:  []good{{status: 200, what: what, schema: schema, media: media, headers: append(headers, "ETag")}, several, notModified},
		problems: []directory.Problem{directory.BadRequest, directory.NotFound},
	}
}

// evidence describes a read of what proves a registration, which may have to be
// fetched from another node.
func evidence(what, schema, media string, problems ...directory.Problem) operation {
	d := resourceRead(what, schema, media)
	d.problems = append(append(d.problems, problem.Upstream, problem.Timeout), problems...)
	return d
}

var (
	readResource = resourceRead("One registration in full (jimenez 4.3).", "registration", "", "Sunset", "Content-Location")
	readRecord   = evidence("Its signed record, an SD-JWT with the disclosures that this domain has (RFC 9901).", "", "application/sd-jwt")
	readProof    = evidence("Its proof file, which roster verify reads without a network.", "proof", "", directory.Forbidden)

	documentProblems = []directory.Problem{directory.BadDocument, directory.QuotaExceeded, directory.CapabilityNotPermitted, directory.BadLifetime, directory.BadQuery, directory.TooManyCapabilities,
		directory.TooLarge, problem.MediaType, directory.WrongKind}
	targetProblems = []directory.Problem{directory.ForeignRegistration, directory.NotFound, directory.RegistrationExpired}

	update = operation{
		summary:    "Renew a registration, and put other top-level members in the place of its own (jimenez 4.4). An empty body renews it alone.",
		parameters: []string{"lt", "If-Match", "If-None-Match"}, body: []string{"schema"}, optional: true,
		answers: []good{
			{status: 204, what: "Done.", headers: []string{"Roster-Index", "Sunset"}},
			{status: 200, what: "Done, and a shorter lifetime was granted than asked for.", schema: "granted", headers: []string{"Roster-Index", "Sunset"}},
		},
		problems: append(append([]directory.Problem{}, documentProblems...), targetProblems...),
	}
	remove = operation{
		summary: "Remove a registration (jimenez 4.5).", parameters: []string{"If-Match", "If-None-Match"},
		answers:  []good{{status: 204, what: "It is gone.", headers: []string{"Roster-Index"}}},
		problems: targetProblems,
	}
)

// operations has what is said of each route of the table.
var operations = map[string]operation{
	"GET /.well-known/ad":          public("The directory's interfaces (jimenez 3.1).", "well-known", ""),
	"GET " + BundlePath:            public("This domain's SPIFFE trust bundle; only where it is served.", "spiffe-bundle", "", directory.Unavailable),
	"GET /.well-known/api-catalog": public("What is here, as links (RFC 9727).", "linkset", "application/linkset+json"),
	"GET " + woaPath: {
		summary:    "The agents that this node's gateway fronts, as an anonymous caller sees them (draft-gaikwad-woa, 4). Without a gateway it lists none.",
		parameters: append(filterKeys(woaParams), "If-None-Match", "If-Match"),
		answers: []good{
			{status: 200, what: "A page of at most 1,000 agents and 4 MiB, a whole document.", schema: "woa-document", media: mediaWoA, also: mediaJSON,
				headers: []string{"ETag", "Last-Modified", "Link", "RateLimit", "RateLimit-Policy"}}, notModified,
		},
		problems: []directory.Problem{directory.BadQuery, directory.RateLimited, directory.Unavailable},
	},
	"GET " + resourcePath:      public("Whose access tokens are taken here, and how (RFC 9728); only where any are.", "protected-resource", ""),
	"GET /openapi.json":        public("This document.", "openapi", ""),
	"GET /problems/{name}":     public("What a problem means and what to do.", "explanation", "", directory.NotFound, directory.BadRequest),
	"GET /schemas/{kind}.json": public("A JSON Schema 2020-12 of a document that goes in, or of a body that comes out.", "schema", "application/schema+json", directory.NotFound, directory.BadRequest),

	"GET /.well-known/agent-discovery": public("What this discovery service does (xu 3.1).", "discovery-service", ""),
	"GET /discovery/agents/{id}":       resourceRead("One registration in full, as Agent Metadata (xu 4).", "profile-metadata", "", "Sunset", "Content-Location"),
	"POST /discovery/agents": {
		summary:    "Publish an agent's metadata, or replace what its owner registered under its id (xu 9). Repeating it renews it.",
		parameters: []string{"lt", "visibility", "owner", "If-Match", "If-None-Match"}, body: []string{string(directory.KindProfile)},
		answers: published("profile-metadata"), problems: append([]directory.Problem{directory.StaleMetadata}, publishProblems...),
	},
	"PUT /discovery/agents/{id}": {
		summary:    "Publish an agent's metadata under the id of the path, or replace what its owner registered there (xu 9). Repeating it renews it.",
		parameters: []string{"lt", "visibility", "owner", "If-Match", "If-None-Match"}, body: []string{string(directory.KindProfile)},
		answers: published("profile-metadata"), problems: slices.Concat([]directory.Problem{directory.StaleMetadata}, publishProblems, targetProblems),
	},
	"DELETE /discovery/agents/{id}": remove,
	"POST /discovery/query": {
		summary:    "Find agents by what they can do, the best first, each with what makes it one (xu 5, 6). What is asked is kept nowhere.",
		parameters: []string{"consistency", "min", "wait"}, body: []string{"discovery-request"},
		answers:  []good{{status: 200, what: "Candidates that the caller may see.", schema: "discovery-response"}},
		problems: []directory.Problem{directory.BadRequest, directory.NotFound, directory.TooLarge, problem.MediaType, problem.UnsupportedFilter, problem.Timeout},
	},
	"GET /ad/l": {
		summary:    "Look registrations up (jimenez 5). All filters must match; cap_name, cap_type and tag on one single capability.",
		parameters: append(filterKeys(lookupParams), "If-None-Match", "If-Match"),
		answers: []good{
			{status: 200, what: "A page of what matches and may be seen.", schema: "listing", headers: []string{"ETag", "Link"}}, notModified,
		},
	},
	"GET /ad/watch": {
		summary: "Follow a lookup: what it answers, then each change. Server-sent events: reset (forget everything), added and updated (an item of a listing), " +
			"removed (agent, href, rid, origin and why: removed, expired, hidden), current (all is told; from here on events have ids), end (why: slow, credential, stopping, stale). " +
			"A heartbeat comes each 15 s. There is no HEAD.",
		parameters: append(filterKeys(watchParams), "Last-Event-ID"),
		answers:    []good{{status: 200, what: "Events, until the client goes.", media: "text/event-stream"}},
	},
	"GET /ad/r/{id}":                 readResource,
	"GET /ad/r/{origin}/{id}":        readResource,
	"GET /ad/r/{id}/record":          readRecord,
	"GET /ad/r/{origin}/{id}/record": readRecord,
	"GET /ad/r/{id}/proof":           readProof,
	"GET /ad/r/{origin}/{id}/proof":  readProof,

	"POST /ad/r": {
		summary:    "Register an agent, or replace what its owner registered (jimenez 4.1, 4.2). The body is a document of the kind that is asked for.",
		parameters: []string{"agent", "lt", "kind", "visibility", "owner", "If-Match", "If-None-Match"},
		body:       directory.KindNames(),
		answers: []good{
			{status: 201, what: "Registered. There is a body only where a shorter lifetime was granted than asked for.", schema: "granted", headers: []string{"Location", "Roster-Index", "Sunset"}},
			{status: 200, what: "Replaced. There is a body only where a shorter lifetime was granted than asked for.", schema: "granted", headers: []string{"Location", "Roster-Index", "Sunset"}},
		},
		problems: append([]directory.Problem{directory.StaleMetadata}, publishProblems...),
	},
	"POST /mcp": {
		summary: "The directory as tools for model clients: the Model Context Protocol over streamable HTTP, without sessions and streams. One message in, its answer out. " +
			"Accept has application/json and text/event-stream. A tool does what its route does, and its result is that route's body.",
		body: []string{"mcp-message"},
		answers: []good{
			{status: 200, what: "The answer to a request.", schema: "mcp-message"},
			{status: 202, what: "A notification was taken."},
			{status: 400, what: "The protocol is not kept.", schema: "mcp-message"},
			{status: 404, what: "There is no such method.", schema: "mcp-message"},
		},
		problems: []directory.Problem{directory.NotFound},
	},
	"POST /ad/refresh": {
		summary: "Renew many registrations at once; ours, beside the draft's refresh of one. Each is judged and answered by itself, as it would be alone; there is no order among them and no all or nothing. " +
			"A list counts as one write for each 50 of it.",
		body:     []string{"renewals"},
		answers:  []good{{status: 200, what: "What became of each.", schema: "renewed", headers: []string{"Roster-Index", "Cache-Control", "Vary"}}},
		problems: []directory.Problem{directory.TooLarge, problem.MediaType},
	},
	"POST /ad/r/{id}/transfer": {
		summary:    "Give a registration to another identity, who must be one that may register it; ours. Its owner does, or an operator with a client certificate. Nothing else of it changes.",
		parameters: []string{"If-Match", "If-None-Match"}, body: []string{"new-owner"},
		answers:  []good{{status: 204, what: "It is the other identity's.", headers: []string{"Roster-Index", "Sunset"}}},
		problems: append([]directory.Problem{directory.CapabilityNotPermitted, directory.QuotaExceeded, directory.TooLarge, problem.MediaType}, targetProblems...),
	},
	"POST /ad/r/{id}":            update,
	"POST /ad/r/{origin}/{id}":   update,
	"DELETE /ad/r/{id}":          remove,
	"DELETE /ad/r/{origin}/{id}": remove,

	"GET /agents": {
		summary:    "The agents that meet all filters, each as a whole (cui 4.3): capabilities, tags and languages by containment.",
		parameters: append(agentKeys(), "If-None-Match", "If-Match"),
		answers: []good{
			{status: 200, what: "A page of summaries, a bare array.", schema: "summaries", headers: []string{"ETag", "Link"}}, notModified,
		},
	},
	"GET /agents/{id}": resourceRead("One agent's metadata in full (cui 3).", "metadata", "", "Sunset", "Content-Location"),
	"POST /agents": {
		summary:    "Publish an agent's metadata, or replace what its owner published (cui 4.2). Without an id, it gets one.",
		parameters: []string{"lt", "visibility", "owner", "If-Match", "If-None-Match"}, body: []string{string(directory.KindAIDIP)},
		answers:  published("metadata"),
		problems: append([]directory.Problem{directory.NameTaken}, documentProblems...),
	},
	"PUT /agents/{id}": {
		summary:    "Put other metadata in the place of all that an agent has (cui 4.2). There must be one.",
		parameters: []string{"lt", "visibility", "owner", "If-Match", "If-None-Match"}, body: []string{string(directory.KindAIDIP)},
		answers:  published("metadata")[1:],
		problems: append(append([]directory.Problem{directory.NameTaken}, documentProblems...), targetProblems...),
	},
	"DELETE /agents/{id}": remove,
	"POST /agents/search": {
		summary:    "The agents that meet all filters; with a query, which needs an identity, the best first (cui 4.3).",
		parameters: []string{"consistency", "min", "wait"}, body: []string{"agent-search"},
		answers:  []good{{status: 200, what: "Summaries, a bare array; with a query, each with its score.", schema: "summaries", headers: []string{"Roster-Warnings"}}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, problem.Timeout},
	},
	"POST /agents/{id}/invoke":      invocation("Have an agent do something, by its input or an envelope (cui 5; gaikwad 5). A member operation says what, where it can do several things."),
	"POST /agents/{id}/{operation}": invocation("Have an agent do what the path says, by the operation's input (cui 5)."),
	"POST /agents/resolve": {
		summary:    "From an intent, its context and a policy to agents and how to invoke them (cui 6). It needs an identity. No agent is asked anything.",
		parameters: []string{"consistency", "min", "wait"}, body: []string{"intent"},
		answers:  []good{{status: 200, what: "Candidates, the best first, and how many were left out why.", schema: "resolution"}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, problem.Timeout},
	},

	"GET /v1/operator/raft":    {summary: "How the domain's nodes hold its directory together.", answers: []good{{status: 200, what: "As this node sees it.", schema: "raft"}}},
	"GET /v1/operator/flagged": {summary: "The registrations whose texts are written for rankers, the first 1,000 by origin and rid.", answers: []good{{status: 200, what: "As this node's ranking judges them.", schema: "flagged"}}},
	"GET /v1/operator/registrations": {
		summary: "The registrations that one identity owns in this domain, whoever may see them.", parameters: []string{"owned-by", "filter-after"},
		answers: []good{{status: 200, what: "A page of at most 100, in the order in which they were registered.", schema: "owned"}}, problems: []directory.Problem{directory.BadQuery},
	},
	"POST /v1/operator/registrations/end": {
		summary: "End registrations of one identity, at most 100.", body: []string{"owner"},
		answers:  []good{{status: 200, what: "What was ended; next says that there are more.", schema: "owned"}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, directory.Unavailable, directory.OutcomeUnknown, problem.Timeout},
	},
	"GET /v1/operator/members": {summary: "The mesh's gossip pool.", answers: []good{{status: 200, what: "As this node sees it.", schema: "members"}}},
	"GET /v1/operator/peers":   {summary: "How the peered domains stand.", answers: []good{{status: 200, what: "As this node sees it.", schema: "peers"}}},
	"GET /v1/operator/peers/evidence": {
		summary: "The evidence by which a peer is frozen, as a file.", parameters: []string{"evidence-domain", "evidence-id"},
		answers: []good{{status: 200, what: "For roster verify, which needs no network.", schema: "evidence"}}, problems: []directory.Problem{directory.BadQuery, directory.NotFound},
	},
	"POST /v1/operator/peers": {
		summary: "Make a peering or change it, for the whole domain.", body: []string{"peering"},
		answers: []good{{status: 204, what: "Agreed."}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, directory.Unavailable, directory.OutcomeUnknown,
			problem.Timeout},
	},
	"POST /v1/operator/peers/invite": {
		summary: "Make a token by which another domain becomes a peer, once.", body: []string{"peer-invite"},
		answers: []good{{status: 200, what: "The token, which is a secret.", schema: "invitation"}}, problems: changed,
	},
	"POST /v1/operator/peers/accept": {
		summary: "Become a peer of the domain that a token is of. To repeat it is safe.", body: []string{"peer-accept"},
		answers: []good{{status: 204, what: "The two are peers. Neither exports anything yet."}}, problems: slices.Concat(changed, []directory.Problem{problem.Upstream}),
	},
	"POST /v1/operator/peers/change": {
		summary: "End a peering, release a frozen one, let the peer have what is for the mesh or no longer, or set its rules and where it is found.", body: []string{"peer-change"},
		answers: []good{{status: 204, what: "Done."}}, problems: changed,
	},
	"POST /v1/peerings": {
		summary: "For a domain that was invited: show the invitation's secret and say who one is.", body: []string{"peer-offer"},
		answers: []good{{status: 204, what: "The two are peers.", headers: []string{"RateLimit", "RateLimit-Policy"}}}, problems: slices.Concat(changed, []directory.Problem{directory.Forbidden}),
	},
	"GET /v1/operator/keys":         {summary: "Which keys sign for the domain.", answers: []good{{status: 200, what: "Its newest key document, in short.", schema: "keys"}}},
	"POST /v1/operator/keys/rotate": ordered("Give the node that is asked another signing key.", "nothing", true),
	"POST /v1/operator/keys/revoke": ordered("Take a signing key back, for good: nothing that it signed is believed any more. Its node makes itself another.", "revoke-key", false),
	"GET /v1/operator/policy": {
		summary: "The policy that is in force.", parameters: []string{"If-None-Match", "If-Match"}, problems: []directory.Problem{directory.PreconditionFailed},
		answers: []good{
			{status: 200, what: "Cedar, and the revision from which on it holds.", schema: "policy", headers: []string{"ETag"}},
			{status: 304, what: "The caller has it already.", headers: []string{"ETag"}},
		},
	},
	"PUT /v1/operator/policy": {
		summary: "Put a policy in force, for the whole domain: where If-Match or version is given, in the place of that one only.", body: []string{"policy"},
		parameters: []string{"If-Match", "If-None-Match"},
		answers:    []good{{status: 204, what: "It is in force at this node, and will be at each as soon as that has the change."}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, directory.Conflict, directory.PreconditionFailed,
			directory.Unavailable, directory.OutcomeUnknown, problem.Timeout},
	},
	"POST /v1/operator/raft/transfer": ordered("Give the leadership to a node of the domain, or to any that is fit where none is named.", "member", true),
	"POST /v1/operator/raft/remove":   ordered("Take a node out of the domain. Refused where those that are left could not write.", "member", false),
	"POST /v1/operator/raft/admit":    ordered("Let a node join the domain, once and within a day; or no longer, with withdraw.", "member", false),
	"POST /v1/operator/raft/leave":    ordered("Take the node that is asked out of its domain. It goes on until it is stopped, and is not ready.", "nothing", true),
	"GET /v1/operator/snapshot": {
		summary: "Save the domain's state while it runs: a backup that has all that was acknowledged before. It has secrets in it.",
		answers: []good{{status: 200, what: "The backup, as it is made.", media: wire.MediaBackup}}, problems: []directory.Problem{directory.Unavailable},
	},
	"POST /v1/operator/snapshot": {
		summary:    "Restore a backup on all of the domain's nodes, and begin a new epoch. Refused where it is another domain's, or without force older than the domain or of a later epoch.",
		parameters: []string{"force", "reason"}, media: wire.MediaBackup,
		answers: []good{{status: 200, what: "Restored.", schema: "restored"}},
		problems: []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, directory.Conflict, directory.Unavailable,
			directory.OutcomeUnknown, problem.Timeout},
	},

	"GET /federation/v1/heads": betweenNodes("The head of an origin's history, as it signed it.", "application/jose", "peer-origin"),
	"GET /federation/v1/keys":  betweenNodes("An origin's key document, signed.", "application/jose", "peer-origin", "peer-key"),
	"GET /federation/v1/pages": betweenNodes("A page of an origin's digests, signed.", "application/jose", "peer-origin", "peer-audience", "peer-since", "peer-limit", "peer-wait"),
	"POST /federation/v1/farewell": {
		summary: "The caller's domain has ended the peering; what was had of it is dropped. Between nodes; not for clients.", answers: []good{{status: 204, what: "Done."}},
	},
	"GET /federation/v1/evidence": {
		summary: "Evidence against a domain that convicts it still, as far as the node knows. Between nodes of one domain; not for clients.", parameters: []string{"peer-origin"},
		answers: []good{{status: 200, what: "The evidence.", schema: "evidence"}, {status: 204, what: "There was some; none convicts now."}}, problems: []directory.Problem{directory.NotFound},
	},
	"POST /federation/v1/evidence": {
		summary: "Evidence that a domain contradicted itself; whoever gets it judges it. Between nodes; not for clients.", body: []string{"evidence"},
		answers: []good{{status: 204, what: "It was looked at."}}, problems: []directory.Problem{directory.BadRequest, directory.TooLarge, directory.Unavailable},
	},
	"POST /federation/v1/records": betweenNodes("Signed records, by their hashes.", "application/x-ndjson"),
}

// agentKeys are the keys of the parameters of GET /agents: some mean something
// else than in a lookup.
func agentKeys() []string {
	keys := filterKeys(agentParams)
	for i, key := range keys {
		if own := "agents-" + strings.TrimPrefix(key, "filter-"); parameters[own] != nil {
			keys[i] = own
		}
	}
	return keys
}

// ordered describes a change of the domain's nodes.
var changed = []directory.Problem{directory.BadRequest, directory.TooLarge, problem.MediaType, directory.NotFound, directory.Conflict,
	directory.Unavailable, directory.OutcomeUnknown, problem.Timeout}

func ordered(what, body string, optional bool) operation {
	return operation{
		summary: what, body: []string{body}, optional: optional, answers: []good{{status: 204, what: "Done."}},
		problems: changed,
	}
}

// betweenNodes describes a route that only nodes speak; package federation says
// what crosses it.
func betweenNodes(what, media string, parameters ...string) operation {
	return operation{summary: what + " Between nodes; not for clients.", parameters: parameters, answers: []good{
		{status: 200, what: what, media: media}, {status: 204, what: "There is nothing."},
	}}
}

// headers has every header of an answer that is worth a word.
var headers = map[string]string{
	"ETag":                 "Of this representation: strong on a registration (\"REVISION.HASH\"), weak on a list.",
	"Idempotency-Replayed": "true: the answer is the first one to the same Idempotency-Key.",
	"Last-Modified":        "Since when it is as it is, at this node.",
	"Location":             "The registration's path.",
	"Content-Location":     "The registration's path, where it was asked for by another.",
	"Link":                 "rel=next: the next page, with the same filters. rel=alternate: one of several candidates.",
	"Sunset":               "When the registration ends unless it is refreshed (RFC 8594).",
	"Cache-Control":        "private for what policy filters, else public.",
	"Vary":                 "What of the request the answer depends on.",
	"Roster-Index":         "How far histories have come in this answer: DOMAIN=EPOCH.REVISION, separated by commas.",
	"Roster-Warnings":      "What a reader of a ranked answer should know: a list of strings (RFC 9651).",
	"Roster-Stale":         "Seconds since this node heard the domain's leader.",
	"RateLimit":            "What is left: \"CLASS\";r=REQUESTS;t=SECONDS until there is more. Absent where there is no limit.",
	"RateLimit-Policy":     "The quota: \"CLASS\";q=REQUESTS;w=SECONDS. Absent where there is no limit.",
	"Retry-After":          "Seconds to wait.",
	"WWW-Authenticate":     "How to authenticate.",
	"X-Request-Id":         "The request's, or one that was made for it.",
}

// invocation describes a route that calls an agent.
func invocation(what string) operation {
	return operation{
		summary:    what + " An array is a batch. It needs no identity where policy lets everybody invoke.",
		parameters: []string{"consistency", "min", "wait", "Idempotency-Key"}, body: []string{"json"},
		answers: []good{
			{status: 200, what: "The agent's output, or an array of them; with its own 2xx status.", schema: "json", also: "text/event-stream", headers: []string{"Idempotency-Replayed"}},
			{status: 201, what: "The agent's output.", schema: "json", headers: []string{"Idempotency-Replayed"}},
			{status: 202, what: "The agent's output.", schema: "json", headers: []string{"Idempotency-Replayed"}},
			several,
		},
		problems: []directory.Problem{directory.BadRequest, directory.BadInput, directory.Forbidden, directory.NotFound, directory.TooLarge,
			problem.MediaType, directory.NotInvocable, directory.EndpointRefused, directory.KeyReused, directory.AgentFailed, directory.AgentUnavailable,
			directory.AgentTimeout, directory.AgentBadRequest, directory.AgentUnauthorized, directory.AgentForbidden, directory.AgentNotFound,
			directory.AgentConflict, directory.AgentTooLarge, directory.AgentUnprocessable, directory.AgentRateLimited},
	}
}
