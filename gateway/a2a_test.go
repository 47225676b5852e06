package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// A recordedRequest is what an agent was sent.
type recordedRequest struct{ path, version, media, accept, body string }

// a2aAgent is an agent that records what it was sent, and answers as its transport does.
func a2aAgent(t *testing.T, s *stage) (address string, got *recordedRequest) {
	got = &recordedRequest{}
	server := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = recordedRequest{r.URL.Path, r.Header.Get("A2A-Version"), r.Header.Get("Content-Type"),
			r.Header.Get("Accept"), string(body)}

		if strings.Contains(string(body), `"jsonrpc"`) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":"1","result":{}}`)

			return
		}

		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		io.WriteString(w, `{}`)
	})

	return server.URL, got
}

// cardOf is a card with interfaces, in which URL stands for an address.
func cardOf(t *testing.T, address, interfaces string) *directory.Entry {
	return entry(t, directory.KindA2A, "a", fmt.Sprintf(`{"name": "A", "description": "D", "version": "1", "skills": [],
		"capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "supportedInterfaces": [%s]}`,
		strings.ReplaceAll(interfaces, "URL", address)))
}

// Requirement: FLD-002
func TestA2ATenantIsTheDeclaredOne(t *testing.T) {
	s := newStage(t, nil)
	address, got := a2aAgent(t, s)

	inputs := []string{
		`{"text": "hi"}`,
		`{"tenant": "globex", "message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}}`,
		`{"Tenant": "globex", "message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}}`,
		`{"message": {"parts": []}, "configuration": {"taskPushNotificationConfig": {"tenant": "globex", "url": "u"}}}`,
		`{"message": {"parts": []}, "configuration": {"blocking": true}}`,
		`{"message": {"parts": []}, "configuration": 5}`,
	}
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		for declared, want := range map[string]string{`, "tenant": "acme"`: `"tenant":"acme"`, ``: ""} {
			e := cardOf(t, address,
				`{"url": "URL/a2a", "protocolBinding": "`+binding+`", "protocolVersion": "1.0"`+declared+`}`)

			for _, input := range inputs {
				for _, stream := range []bool{false, true} {
					*got = recordedRequest{}

					_, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(input), Stream: stream})
					if err != nil {
						t.Fatalf("%s: %v", input, err)
					}

					if strings.Contains(got.body, "globex") || !strings.Contains(got.body, want) ||
						want == "" && strings.Contains(strings.ToLower(got.body), "tenant") {
						t.Errorf("%s declares %q, input %s: sent %s", binding, declared, input, got.body)
					}
				}
			}
		}
	}

	// A member of the input that is no parameter is the agent's.
	e := cardOf(t, address, `{"url": "URL", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "acme"}`)
	if _, err := invokeAgent(s, e, "", `{"tenant": "globex", "n": 1}`); err != nil ||
		!strings.Contains(got.body, `{"data":{"tenant": "globex", "n": 1}}`) &&
			!strings.Contains(got.body, `{"data":{"tenant":"globex","n":1}}`) {
		t.Errorf("data: sent %s, %v", got.body, err)
	}
}

// Requirement: FLD-007
func TestA2AVersionIsOfTheSelectedInterface(t *testing.T) {
	s := newStage(t, nil)
	address, got := a2aAgent(t, s)

	const (
		old   = `{"url": "URL/two", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}`
		rest  = `{"url": "URL/two", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}`
		newer = `{"url": "URL/two", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}`
		grpc  = `{"url": "URL/two", "protocolBinding": "GRPC", "protocolVersion": "1.0"}`
	)
	for _, tc := range []struct{ interfaces, version, sent string }{
		{old + "," + rest, "", `"method":"message/send"`},
		{rest + "," + old, "1.0", `"role":"ROLE_USER"`},
		{grpc + "," + old, "", `"method":"message/send"`},
		{old + "," + newer, "", `"method":"message/send"`},
		{newer + "," + old, "1.0", `"method":"SendMessage"`},
	} {
		_, err := invokeAgent(s, cardOf(t, address, tc.interfaces), "", `{"text": "hi"}`)
		if err != nil || got.version != tc.version || !strings.Contains(got.body, tc.sent) {
			t.Errorf("%s: version %q, sent %s, %v", tc.interfaces, got.version, got.body, err)
		}
	}
}

// Requirement: FLD-009
func TestA2AMediaTypesOfHTTP(t *testing.T) {
	s := newStage(t, nil)
	address, got := a2aAgent(t, s)

	for _, tc := range []struct {
		version, binding string
		stream           bool
		media, accept    string
	}{
		{"1.0", "HTTP+JSON", false, "application/a2a+json",
			"application/a2a+json, application/json, application/problem+json"},
		{"1.0", "HTTP+JSON", true, "application/a2a+json",
			"text/event-stream, application/a2a+json, application/json, application/problem+json"},
		{"1.0", "JSONRPC", false, "application/json", "application/json, application/problem+json"},
		{"0.3", "HTTP+JSON", false, "application/json", "application/json, application/problem+json"},
	} {
		e := cardOf(t, address, fmt.Sprintf(`{"url": "URL/r", "protocolBinding": %q, "protocolVersion": %q}`,
			tc.binding, tc.version))

		reply, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text": "hi"}`), Stream: tc.stream})
		if err != nil || string(reply.Body) != "{}" || got.media != tc.media || got.accept != tc.accept {
			t.Errorf("%+v: %+v, %v", tc, *got, err)
		}
	}
}
