package api

import (
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/roster-mesh/roster/directory"
)

// parameters has every parameter by its key: its name, but for those filters
// whose name means something else on another route.
var parameters = map[string]*openapi3.Parameter{
	"path-id":        inPath("id", "A registration's rid, or its agent name, percent-encoded; a rid wins. This domain's own goes first."),
	"path-operation": inPath("operation", "What the agent calls the operation."),
	"path-origin":    inPath("origin", "The trust domain that a copy is of."),
	"path-name":      inPath("name", "The last segment of a problem's type."),
	"path-kind":      inPath("kind", "The name of a schema, such as a kind of document."),

	"agent":      required(inQuery("agent", "The agent's name: 1 to 255 bytes of UTF-8, unique in the directory.", text("", directory.MaxName, 1))),
	"lt":         inQuery("lt", "The lifetime in seconds. What exceeds the directory's maximum is granted the maximum.", lifetimes()),
	"kind":       inQuery("kind", "The document's kind; ad by default.", kindNames()),
	"visibility": inQuery("visibility", "Who beyond the domain may have it: domain, mesh, or peers:DOMAIN,…. Without it, what is replaced keeps its own, and what is new gets the default of policy.", text("", 0)),
	"owner":      inQuery("owner", "Of a commissioning tool: on whose behalf it registers, who then owns it; itself by default. Policy decides.", uri("")),

	"consistency": inQuery("consistency", "default: from this node, unless its leader has been silent for too long; stale: whatever is here; linearizable: all that any node had acknowledged before, confirmed by a majority of the domain's nodes. It is about this domain's own registrations.", oneOf("default", "stale", "linearizable")),
	"min":         inQuery("min", "DOMAIN=EPOCH.REVISION, as Roster-Index has it: wait until this node has that. May be repeated.", array(text("", 0), "", 0)),
	"wait":        inQuery("wait", "Whole seconds to wait for what min names; 5 by default.", upTo(maxWait)),

	"filter-agent":    repeated("agent", "A name, or its beginning and an asterisk."),
	"filter-protocol": repeated("protocol", "One of the protocols, exactly."),
	"filter-cap_name": repeated("cap_name", "A capability's name, or its beginning and an asterisk."),
	"filter-cap_type": repeated("cap_type", "A capability's type, exactly."),
	"filter-tag":      repeated("tag", "A capability's tag, or the agent's, exactly."),
	"filter-page":     inQuery("page", "Which page, from 0: an offset, where after is not given.", atLeast(0, "")),
	"filter-count":    inQuery("count", "Items on a page; over max_count is max_count.", atLeast(1, "")),
	"filter-origin":   inQuery("origin", "A trust domain: only what is registered there.", text("", 0)),
	"filter-scope":    inQuery("scope", "mesh by default; domain: only this domain's own.", oneOf("mesh", "domain")),
	"filter-status":   repeated("status", "active, inactive, …"),
	"filter-language": repeated("language", "A language that the agent supports."),
	"filter-after":    inQuery("after", "A cursor: continue behind it. It wins over page.", text("", 0)),
	"filter-brief":    inQuery("brief", "true: provenance in short.", &openapi3.Schema{Type: &openapi3.Types{"boolean"}}),

	"agents-capabilities": repeated("capabilities", "Capabilities that the agent lists, separated by commas."),
	"agents-tags":         repeated("tags", "Tags of the agent or of its capabilities, separated by commas."),
	"agents-language":     repeated("language", "Languages that the agent supports, separated by commas; one that lists none is not left out."),
	"agents-status":       inQuery("status", "active by default; any for all.", text("", 0)),

	"owned-by": required(inQuery("owner", "The identity whose registrations are asked for.", uri(""))),

	"force":  inQuery("force", "true: also where the backup is older than the domain or of a later epoch.", boolean()),
	"reason": inQuery("reason", "Why, for the domain's ledger; at most 200 bytes.", text("", 200)),

	"evidence-domain": required(inQuery("domain", "The domain that it is against.", nonEmpty(""))),
	"evidence-id":     inQuery("id", "Which; the oldest by default.", nonEmpty("")),

	"peer-origin":   required(inQuery("origin", "The trust domain whose it is.", nonEmpty(""))),
	"peer-audience": required(inQuery("aud", "mesh, or the domain that it is for.", nonEmpty(""))),
	"peer-since":    inQuery("since", "The revision that the caller has; 0 by default.", atLeast(0, "")),
	"peer-key":      inQuery("key", "An id of a key: the newest document that lists it.", nonEmpty("")),
	"peer-limit":    inQuery("limit", "The most digests on the page.", atLeast(1, "")),
	"peer-wait":     inQuery("wait", "Seconds to wait for what is not there yet.", atLeast(0, "")),

	"If-Match":        inHeader("If-Match", "Entity tags, one of which must be current, or *. On a write the domain's leader decides, by the revision in the tag."),
	"If-None-Match":   inHeader("If-None-Match", "On a read: entity tags that the client has, or *. On a write: *, where there must be nothing yet."),
	"Last-Event-ID":   inHeader("Last-Event-ID", "The id of the last event that the client has. The stream goes on behind it where this node can, else it begins with reset."),
	"Idempotency-Key": inHeader("Idempotency-Key", "A caller's own name for one invocation of an agent: the same again, with the same body, is answered with the first result for some time. At this node alone."),
	"X-Request-Id":    inHeader("X-Request-Id", "Up to 128 letters, digits, and ._:-; repeated in the answer and in the log."),
}

// filterKeys are the keys of those of a lookup's parameters.
func filterKeys(names []string) []string {
	var keys []string
	for _, name := range names {
		if name == "consistency" {
			keys = append(keys, "consistency", "min", "wait")
		} else {
			keys = append(keys, "filter-"+name)
		}
	}
	return keys
}

func inPath(name, description string) *openapi3.Parameter {
	return &openapi3.Parameter{Name: name, In: "path", Required: true, Description: description, Schema: &openapi3.SchemaRef{Value: nonEmpty("")}}
}

func inQuery(name, description string, schema *openapi3.Schema) *openapi3.Parameter {
	return &openapi3.Parameter{Name: name, In: "query", Description: description, Schema: &openapi3.SchemaRef{Value: schema}}
}

func inHeader(name, description string) *openapi3.Parameter {
	return &openapi3.Parameter{Name: name, In: "header", Description: description, Schema: &openapi3.SchemaRef{Value: text("", 0)}}
}

func required(p *openapi3.Parameter) *openapi3.Parameter {
	p.Required = true
	return p
}

// repeated is a filter that may be given several times; all must match.
func repeated(name, description string) *openapi3.Parameter {
	return inQuery(name, description+" May be repeated: all must match.", array(text("", 0), "", 0))
}

// kindNames is one of the kinds of documents.
func kindNames() *openapi3.Schema {
	s := &openapi3.Schema{Type: &openapi3.Types{"string"}}
	for _, name := range directory.KindNames() {
		s.Enum = append(s.Enum, name)
	}
	return s
}

func lifetimes() *openapi3.Schema {
	most := float64(1<<32 - 1)
	s := atLeast(directory.MinLifetime, "")
	s.Max = &most
	return s
}
