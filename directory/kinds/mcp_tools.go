package kinds

import (
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// publisherMeta is the member of a server.json's _meta that the MCP registry leaves to
// publishers. It has the server's tools as {"tools": [{"name": "...", "description": "..."}]}.
const publisherMeta = "io.modelcontextprotocol.registry/publisher-provided"

// toolsOfMCP returns the tools in the publisher's own data about a server. The format of
// server.json gives this data no shape, so tools of another shape are ignored, as are those
// beyond MaxCapabilities. Their schemas are the server's to tell, which the gateway asks.
func toolsOfMCP(doc *object) (tools []directory.Capability) {
	seen := map[string]bool{}

	meta := strictjson.SplitObject(valueOf(doc.members, "_meta", '{'))
	publisher := strictjson.SplitObject(valueOf(meta, publisherMeta, '{'))

	for _, element := range strictjson.SplitArray(valueOf(publisher, "tools", '[')) {
		if len(tools) == directory.MaxCapabilities {
			break
		}

		var tool directory.Capability

		switch element[0] {
		case '{':
			members := strictjson.SplitObject(element)
			tool.Name, _ = strictjson.TextMember(members, "name")
			tool.Description, _ = strictjson.TextMember(members, "description")
		case '"':
			tool.Name = strictjson.Unquote(element)
		}

		// Lookups compare names in NFC, so two of one form are the same tool.
		key := norm.NFC.String(tool.Name)
		if seen[key] || !IsTool(tool.Name) || len(tool.Description) > directory.MaxDescription {
			continue
		}

		seen[key] = true
		tool.Type = directory.CapabilityTool
		tools = append(tools, tool)
	}

	return tools
}

// valueOf returns the value of a member if it begins with a byte; else nil.
func valueOf(members []strictjson.Member, name string, begins byte) []byte {
	value, found := strictjson.FindMember(members, name)
	if !found || value[0] != begins {
		return nil
	}

	return value
}

// IsTool reports whether lookups can ask for a tool of that name.
func IsTool(name string) bool {
	return name != "" && !strings.Contains(name, "*") && !strings.ContainsFunc(name, directory.IsUnseen)
}

// WithTools returns a server.json whose tools are the given ones, by their names and descriptions.
func WithTools(document directory.Document, tools []directory.Capability) ([]byte, error) {
	list := strictjson.AppendList(nil, tools, func(b []byte, tool directory.Capability) []byte {
		b = strictjson.AppendText(append(b, '{'), "name", tool.Name)
		if tool.Description != "" {
			b = strictjson.AppendText(b, "description", tool.Description)
		}

		return append(b, '}')
	})

	doc := readDocument(document)
	meta := doc.child("_meta")
	publisher := meta.child(publisherMeta)

	// Data of another type under these names must not be overwritten.
	if err := doc.reading.err(); err != nil {
		return nil, err
	}

	value := strictjson.AppendObject(nil, withMember(publisher.members, "tools", list))
	value = strictjson.AppendObject(nil, withMember(meta.members, publisherMeta, value))

	return strictjson.AppendObject(nil, withMember(doc.members, "_meta", value)), nil
}

// withMember returns the members with one that is replaced in its place, or added.
func withMember(members []strictjson.Member, name string, value []byte) []strictjson.Member {
	out := make([]strictjson.Member, 0, len(members)+1)
	added := false

	for _, m := range members {
		if m.Name == name {
			m.Value = value
			added = true
		}

		out = append(out, m)
	}

	if !added {
		out = append(out, strictjson.Member{Name: name, Value: value})
	}

	return out
}
