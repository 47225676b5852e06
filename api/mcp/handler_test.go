package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/api/client"
)

// A fault in a tool, which runs on a goroutine of the SDK's, is an error of that call
// and not the end of the node.
func TestToolsMayPanic(t *testing.T) {
	h := &Handler{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}

	answer := h.offer(func(context.Context, string, mcp.Request) (mcp.Result, error) { panic("a fault") })
	if out, err := answer(t.Context(), "tools/call", nil); err == nil || out != nil ||
		strings.Contains(err.Error(), "a fault") {
		t.Errorf("a tool that panics: %v, %v", out, err)
	}
}

// A stream is shown to a model without its framing, and as a value if it has one part.
func TestToolsShowStreamsWithoutFraming(t *testing.T) {
	for body, want := range map[string]string{
		"data: {\"a\":1}\n\n":              `{"output":{"a":1}}`,
		"data: one\n\ndata: {\"b\":2}\n\n": `{"text":"one\u000a{\"b\":2}"}`,
		"data: one\n\nevent: error\ndata: {\"error\":{\"message\":\"late\"}}\n\n": `{"text":"one\u000a` +
			`the agent's stream ended with an error: late"}`,
	} {
		reply := &client.Reply{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: []byte(body)}
		if got := string(describeOutput(reply)); got != want {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	}
}
