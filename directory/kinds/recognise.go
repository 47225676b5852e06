package kinds

import (
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// marks are the top-level members that distinguish the documents of a kind from those of the
// others.
type marks struct {
	kind directory.Kind
	// own are members that only documents of this kind have: one of them is sufficient.
	own []string
	// all are members that are sufficient together.
	all []string
	// hints are members that others have, too.
	hints []string
}

// marksOfKinds are in the order in which hints count.
var marksOfKinds = []marks{
	{
		kind: directory.KindA2A,
		own: []string{
			"protocolVersion", "supportedInterfaces", "additionalInterfaces", "preferredTransport",
			"defaultInputModes", "defaultOutputModes", "supportsAuthenticatedExtendedCard",
		},
		all:   []string{"url", "skills"},
		hints: []string{"url", "skills"},
	},
	{
		kind:  directory.KindMCP,
		own:   []string{"packages", "remotes", "version_detail"},
		hints: []string{"repository", "websiteUrl"},
	},
	{
		kind:  directory.KindOASF,
		own:   []string{"schema_version", "locators"},
		hints: []string{"modules", "authors", "domains"},
	},
	{
		kind:  directory.KindWoA,
		own:   []string{"woa_version"},
		all:   []string{"agents", "transports"},
		hints: []string{"agents", "transports"},
	},
	{
		kind:  directory.KindProfile,
		all:   []string{"id", "bindings"},
		hints: []string{"bindings"},
	},
	{
		kind:  directory.KindAIDIP,
		all:   []string{"endpoint"},
		hints: []string{"operations", "publisher"},
	},
}

// titles are the kinds as people call them, with an article.
var titles = map[directory.Kind]string{
	directory.KindAD:      "an agent description of the Agent Directory draft",
	directory.KindProfile: "agent metadata of the Efficient Agent Discovery draft",
	directory.KindAIDIP:   "agent metadata of the Agent Discovery and Invocation draft",
	directory.KindWoA:     "a Web of Agents document",
	directory.KindA2A:     "an A2A agent card",
	directory.KindMCP:     "an MCP server.json",
	directory.KindOASF:    "an OASF record",
}

// Title returns the name of documents of a kind, with an article.
func Title(kind directory.Kind) string { return titles[kind] }

// Recognise returns the kind of a JSON document by its top-level members, whether or not the
// document is valid, and whether only that kind has such members. It returns "" for a
// document that looks like no kind. One with the member base is of the Agent Directory's own
// kind: no other kind has it, and that kind keeps members that it doesn't know.
func Recognise(members []strictjson.Member) (kind directory.Kind, certain bool) {
	has := map[string]bool{}
	for _, m := range members {
		has[m.Name] = true
	}

	if has["base"] {
		return directory.KindAD, true
	}

	// A server.json may have no member of its own kind, and still names its schema.
	if schema, _ := strictjson.TextMember(members, "$schema"); strings.Contains(schema, "modelcontextprotocol") {
		return directory.KindMCP, true
	}

	var found []directory.Kind

	for _, m := range marksOfKinds {
		if count(has, m.own) > 0 || len(m.all) > 0 && count(has, m.all) == len(m.all) {
			found = append(found, m.kind)
		}
	}

	switch len(found) {
	case 0:
		return likely(has), false
	case 1:
		return found[0], true
	default:
		return found[0], false
	}
}

// likely returns the kind with most of the members that other kinds have, too.
func likely(has map[string]bool) (kind directory.Kind) {
	most := 0
	for _, m := range marksOfKinds {
		if n := count(has, m.hints); n > most {
			kind = m.kind
			most = n
		}
	}

	return kind
}

func count(has map[string]bool, names []string) (n int) {
	for _, name := range names {
		if has[name] {
			n++
		}
	}

	return n
}
