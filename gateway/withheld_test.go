package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// secretTools are capabilities that a caller may not see: names, fields and their count.
const secretTools = `, "capabilities": [{"name": "canary", "type": "tool", "input_schema": {"type": "object",
	"required": ["canary_field"], "properties": {"canary_field": {"type": "integer"}}},
	"output_schema": {"type": "object", "required": ["canary_output"]}},
	{"name": "canary_two", "type": "tool"}]`

// A caller from whom operations and schemas are withheld gets, whatever it sends, the answer
// that it would get of an agent without them: no error names one, counts them, or differs by
// an input that a withheld schema refuses (finding 9).
//
// Requirement: SEC-014
func TestWithheldOperationsShowInNoError(t *testing.T) {
	s := newStage(t, nil)
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"text": "done"}`)
	})
	tools := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)

	for _, name := range []string{"canary", "canary_two"} {
		mcp.AddTool(tools, &mcp.Tool{Name: name, Description: "Repeats."},
			func(context.Context, *mcp.CallToolRequest, struct {
				Field int `json:"canary_field"`
			}) (*mcp.CallToolResult, any, error) {
				return nil, map[string]string{"text": "done"}, nil
			})
	}

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil)
	server := s.agent(t, handler.ServeHTTP)

	for protocol, endpoint := range map[string]string{"https": agent.URL, "mcp": server.URL} {
		document := func(rest string) *directory.Entry {
			return entry(t, directory.KindAD, "agent", fmt.Sprintf(`{"base": %q, "protocols": [%q]%s}`, endpoint,
				protocol, rest))
		}
		withheld, without := document(secretTools), document("")

		for _, tc := range []struct{ operation, body string }{
			{"", `{"canary_field": "text"}`},
			{"", `{"text": "a"}`},
			{"", `{"operation": "canary", "input": {"canary_field": "text"}}`},
			{"", `{"operation": "unknown", "input": {}}`},
			{"", `{"operation": "unknown"}`},
			{"", `[{"canary_field": "text"}, {"operation": "unknown", "input": {}}]`},
			{"", `{"agent": "agent", "input": 5}`},
			{"canary", `{"canary_field": "text"}`},
			{"unknown", `{}`},
		} {
			got := s.outcome(t, withheld, directory.Withhold("capabilities"), tc.operation, tc.body)
			want := s.outcome(t, without, directory.Redaction{}, tc.operation, tc.body)

			if protocol == "mcp" {
				want = ""
			}

			if want != "" && got != want || containsCanary(got, tc.body+tc.operation) {
				t.Errorf("%s, %q %s:\n%s, but for an agent without operations\n%s", protocol, tc.operation, tc.body,
					got, want)
			}
		}

		if protocol == "mcp" { // likewise the tools in a server.json
			told := entry(t, directory.KindMCP, "agent", fmt.Sprintf(`{"name": "test/agent", "remotes": [{"url": %q}],
				"_meta": {"io.modelcontextprotocol.registry/publisher-provided": {"tools": ["canary"]}}}`, endpoint))
			for _, operation := range []string{"", "unknown"} {
				if got := s.outcome(t, told, directory.Withhold("_meta"), operation, `{}`); containsCanary(got, "") {
					t.Errorf("%q of a server whose tools are withheld: %s", operation, got)
				}
			}
		}

		// A caller who sees them is helped as ever.
		for _, redaction := range []directory.Redaction{{}, directory.Withhold("protocols")} {
			if got := s.outcome(t, withheld, redaction, "unknown", `{}`); !containsCanary(got, "") {
				t.Errorf("%s: a caller who sees the operations is told %s", protocol, got)
			}
		}
	}
}

// An input is judged by a schema that is withheld from its caller, too: the agent isn't called with
// one that breaks it, and the refusal tells nothing of the schema.
//
// Requirement: AI-008, SEC-014
func TestAWithheldSchemaJudgesWithoutAWord(t *testing.T) {
	s := newStage(t, nil)

	var calls atomic.Int32

	agent := s.agent(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"text": "done"}`)
	})
	tools := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "canary", Description: "Repeats."},
		func(context.Context, *mcp.CallToolRequest, struct {
			Field int `json:"canary_field"`
		}) (*mcp.CallToolResult, any, error) {
			calls.Add(1)
			return nil, map[string]string{"text": "done"}, nil
		})

	server := s.agent(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil).ServeHTTP)

	const one = `, "capabilities": [{"name": "canary", "type": "tool", "input_schema": {"type": "object",
		"required": ["canary_field"], "properties": {"canary_field": {"type": "integer"}}}}]`

	for protocol, endpoint := range map[string]string{"https": agent.URL, "mcp": server.URL} {
		e := entry(t, directory.KindAD, "agent", fmt.Sprintf(`{"base": %q, "protocols": [%q]%s}`, endpoint,
			protocol, one))
		hidden := directory.Withhold("capabilities")

		before := calls.Load()

		got := s.outcome(t, e, hidden, "", `{"canary_field": "text"}`)
		if calls.Load() != before || !strings.Contains(got, string(directory.BadInput)) ||
			!strings.Contains(got, "schema, which is withheld from you") || containsCanary(got, "canary_field") {
			t.Errorf("%s: a bad input reached the agent (%d), or was answered by %s", protocol, calls.Load(), got)
		}

		if got := s.outcome(t, e, hidden, "", `{"canary_field": 5}`); calls.Load() != before+1 ||
			!strings.Contains(got, "done") {
			t.Errorf("%s: a good input: %s", protocol, got)
		}

		if got := s.outcome(t, e, directory.Redaction{}, "", `{"canary_field": "text"}`); calls.Load() != before+1 ||
			!strings.Contains(got, "/canary_field") {
			t.Errorf("%s: a caller who sees the schema is told %s", protocol, got)
		}
	}
}

// A withheld input schema judges also when the operation's name and output are seen.
//
// Requirement: AI-008, SEC-014
func TestAWithheldInputSchemaJudges(t *testing.T) {
	s := newStage(t, nil)
	e := aidip(t, s.agent(t, echo).URL, `"inputs": {"type": "object", "required": ["canary_field"]}, "outputs": {}`)

	got := s.outcome(t, e, directory.Withhold("inputs"), "", `{"text": "a"}`)
	if !strings.Contains(got, "schema, which is withheld from you") || containsCanary(got, "") {
		t.Errorf("an input that breaks it: %s", got)
	}
}

// outcome returns the answer of an invocation, or its error with all that a client gets.
func (s *stage) outcome(t *testing.T, e *directory.Entry, redaction directory.Redaction, operation,
	body string) string {
	t.Helper()

	reply, err := s.Invoke(t.Context(), e, invoke.Request{Operation: operation, Body: []byte(body),
		Caller: directory.IdentityOf(beta), Redaction: redaction})

	var refusal *directory.Error

	switch {
	case err == nil:
		return string(reply.Body)
	case errors.As(err, &refusal):
		return fmt.Sprint(refusal.Problem, refusal.Detail, refusal.Pointer, refusal.Violations)
	}

	return err.Error()
}

// containsCanary reports whether a text has a withheld name that the caller has not sent.
func containsCanary(text, sent string) bool {
	for _, name := range []string{"canary_two", "canary_output", "canary_field", "canary"} {
		if strings.Contains(text, name) && !strings.Contains(sent, name) {
			return true
		}
	}

	return false
}
