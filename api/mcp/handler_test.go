package mcp

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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
