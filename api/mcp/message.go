package mcp

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// MaxMessage bounds one MCP message: the largest document with all of its characters
// escaped, and its envelope.
const MaxMessage = 4 * request.MaxBody

// A message has the members of an MCP message that decide how it is handled.
type message struct {
	method, tool string
	id           []byte // JSON
}

// readMessage reads a request's body, and its message.
func readMessage(w http.ResponseWriter, c *request.Call) (body []byte, message message, err error) {
	if body, err = request.ReadBody(w, c); err == nil {
		message, err = parseMessage(body)
	}

	return body, message, err
}

// parseMessage reads one strict JSON-RPC message. Batches belong to a version of MCP that
// lets one request be many.
func parseMessage(body []byte) (message message, err error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return message, directory.Refuse(directory.BadRequest, "batches are not supported. Send one message at a time")
	}

	members, err := directory.ParseObject(body)
	if err != nil {
		return message, err
	}

	args := arguments{given: valuesOf(members)}

	message.id = args.given["id"]
	if message.method, err = args.text("method"); err != nil || message.method != "tools/call" {
		return message, err
	}

	// The tool decides how much time and memory the call gets, before the library reads the message.
	params, err := directory.ParseObject(args.given["params"])
	if err != nil {
		return message, err
	}

	message.tool, err = arguments{given: valuesOf(params)}.text("name")

	return message, err
}

// notHandled begins the SDK's plain-text answer to an unknown method. JSON-RPC has an
// answer for that (2.0, 5.1), and clients that probe a server wait for it.
const notHandled = "JSON RPC not handled"

func (m message) unknownMethod(why string) []byte {
	id := m.id
	if len(id) == 0 {
		id = []byte("null")
	}

	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":%s}}`, id,
		strictjson.AppendString(nil, why))
}

func valuesOf(members []strictjson.Member) map[string]jsontext.Value {
	values := map[string]jsontext.Value{}
	for _, m := range members {
		values[m.Name] = m.Value
	}

	return values
}
