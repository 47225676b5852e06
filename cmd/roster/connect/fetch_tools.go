package connect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
)

// maxToolText is the bytes of a tool's description that are registered, so that many tools fit
// into a document.
const maxToolText = 300

// Tools are the tools of an MCP server, for its registration.
type Tools struct {
	Document []byte // the server.json with the tools
	Note     string // the number and reason of tools that are left out; may be empty
}

// AddTools asks the MCP server of a server.json once for its tools, at the first remote that a
// gateway would call, and adds them to the document.
func AddTools(ctx context.Context, guard *gateway.Guard, text []byte) (Tools, error) {
	document, err := directory.ParseDocument(directory.KindMCP, text)
	if err != nil {
		return Tools{}, err
	}

	projection, err := kinds.Project("", document)
	if err != nil {
		return Tools{}, err
	}

	remote := slices.IndexFunc(projection.Bindings, func(b directory.Binding) bool {
		return strings.HasPrefix(b.Endpoint, "http") && b.Transport != "sse"
	})
	if remote < 0 {
		return Tools{}, errors.New("the document has no remote of type streamable-http with a URL, so no server " +
			"can be asked for its tools")
	}

	server, err := guard.DescribeMCP(ctx, projection.Bindings[remote].Endpoint, gateway.Target{})
	if err != nil {
		return Tools{}, fmt.Errorf("cannot list the tools of %s: %w", projection.Bindings[remote].Endpoint, err)
	}

	return withTools(document, server)
}

func withTools(document directory.Document, server *gateway.MCPServer) (with Tools, err error) {
	var (
		tools   []directory.Capability
		leftOut int
	)
	for _, t := range server.Tools {
		if len(tools) == directory.MaxCapabilities || !kinds.IsTool(t.Name) {
			leftOut++
			continue
		}

		tools = append(tools, directory.Capability{Name: t.Name, Description: shorten(t.Description)})
	}

	switch {
	case leftOut > 0:
		with.Note = fmt.Sprintf("%d of the server's %d tools are left out: at most %d are registered, and none "+
			"whose name has a * or an invisible character", leftOut, len(server.Tools), directory.MaxCapabilities)
	case !server.AllTools:
		with.Note = fmt.Sprintf("the server may have more than the %d tools that it listed", len(server.Tools))
	}

	with.Document, err = kinds.WithTools(document, tools)

	return with, err
}

// shorten returns the beginning of a description, on one line.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxToolText {
		return text
	}

	end := maxToolText - len("…")

	// The cut goes back to the beginning of a character.
	for !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + "…"
}
