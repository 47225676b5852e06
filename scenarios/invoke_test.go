package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// An agent of one domain is invoked through the gateway of a peer, by its current
// registration. The gateway authenticates as itself and not as the caller. Errors name
// the party at fault, an idempotency key holds at all nodes, and a stream ends with its
// reader or with the node.
//
// Requirement: AI-007, AI-008, AI-010, AI-012, AI-017, AI-018, AI-034, AI-035, WOA-009, WOA-024, WOA-026, XU-065
func TestAgentsAreInvokedAcrossDomains(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "3", "--nodes", "3", "--sample", "0")

	var (
		calls atomic.Int32
		shown atomic.Value
	)
	started, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	agent := launch.Agent(t, &p.Domains[1], "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls.Add(1)
		shown.Store(fmt.Sprint(r.TLS.PeerCertificates[0].URIs[0], r.Header))
		w.Header().Set("Content-Type", "application/json")

		switch {
		case strings.Contains(r.Header.Get("Accept"), "event-stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			started <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		case bytes.Contains(body, []byte("wrong")):
			io.WriteString(w, `{"words": 7}`)
		default:
			io.WriteString(w, `{"text": "canary-output"}`)
		}
	})
	document := func(at string) []byte {
		return fmt.Appendf(nil,
			`{"base": %q, "protocols": ["https"], "capabilities": [{"name": "translate", "type": "tool",
			"input_schema": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
			"output_schema": {"type": "object", "required": ["text"]}}]}`, at)
	}

	const nobody = "https://127.0.0.1:1025/"
	ada := p.client(1, 0, "agent/ada")
	register := func(at string) {
		t.Helper()

		if _, err := ada.Register(t.Context(), "translator", document(at),
			apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	register(nobody)
	invoke := func(node int, body string, header ...string) (int, http.Header, string) {
		t.Helper()

		got := exchangeOf(t, p.http(0, "agent/bob"), p.Domains[0].Nodes[node].API, "POST", "/agents/translator/invoke",
			body, header...)

		return got.status, got.header, string(got.body)
	}
	p.eventually("the agent is known in the other domain", func() error {
		if status, _, body := invoke(0, `{"text": "a"}`); status != http.StatusBadGateway {
			return fmt.Errorf("%d %s", status, body)
		}

		return nil
	})
	register(agent.URL + "/a")

	for node := range 2 { // each follows the other domain by itself
		p.eventually("it is called where it is now", func() error {
			if status, _, body := invoke(node, `{"text": "a"}`); status != http.StatusOK ||
				body != `{"text": "canary-output"}` {
				return fmt.Errorf("%d at node %d: %s", status, node, body)
			}

			return nil
		})
	}

	if got := shown.Load().(string); !strings.HasPrefix(got, "spiffe://alpha.test/roster/gateway/") ||
		strings.Contains(got, "bob") || strings.Contains(got, "Traceparent") {
		t.Errorf("the agent was shown %s", got)
	}

	calls.Store(0)

	for name, tc := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"an input against the schema":   {`{"text": 5}`, 400, "InvalidInput"},
		"an output against the schema":  {`{"text": "wrong"}`, 502, "AgentError"},
		"an operation that there isn't": {`{"operation": "sum", "input": {"text": "a"}}`, 400, "InvalidInput"},
	} {
		if status, _, body := invoke(1, tc.body); status != tc.status || !strings.Contains(body, `"`+tc.code+`"`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}

	if n := calls.Load(); n != 1 {
		t.Errorf("the agent was called %d times, want one call for each valid request", n)
	}

	bob := p.client(0, 0, "agent/bob")
	calls.Store(0)
	reply, err := contract.Invoke(t.Context(), bob,
		contract.Invocation{ID: "translator", Input: []byte(`{"text": 5}`)}, apiclient.InvokeOptions{})

	var unfit *directory.Error
	if !errors.As(err, &unfit) || unfit.Pointer != "/text" || reply != nil {
		t.Errorf("the client is to judge by the schema of the registration: %v, %v", reply, err)
	}

	reply, err = contract.Invoke(t.Context(), bob,
		contract.Invocation{ID: "translator", Input: []byte(`{"text": "a"}`)}, apiclient.InvokeOptions{})
	if err != nil || string(reply.Body) != `{"text": "canary-output"}` || calls.Load() != 1 {
		t.Errorf("the client invokes: %v, %v; %d calls", reply, err, calls.Load())
	}

	calls.Store(0)

	for i, want := range []string{"", "true"} {
		status, header, body := invoke(i, `{"text": "a"}`, "Idempotency-Key", "one")
		if status != http.StatusOK || header.Get("Idempotency-Replayed") != want ||
			body != `{"text": "canary-output"}` {
			t.Errorf("with a key at node %d: %d %v %s", i, status, header, body)
		}
	}

	if status, _, body := invoke(0, `{"text": "b"}`, "Idempotency-Key", "one"); status != 422 || calls.Load() != 1 {
		t.Errorf("another body with it: %d %s; %d calls", status, body, calls.Load())
	}

	stream := func(node int) (*http.Response, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())

		req, err := http.NewRequestWithContext(ctx, "POST", p.Domains[0].Nodes[node].API+"/agents/translator/invoke",
			strings.NewReader(`{"text": "a"}`))
		must(t, err)

		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/event-stream")

		resp, err := p.http(0, "agent/bob").Do(req)
		must(t, err)

		t.Cleanup(func() { cancel(); resp.Body.Close() })

		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the stream begins with %s", resp.Status)
		}

		<-started

		first := make([]byte, len("data: 1\n\n"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
			t.Fatalf("the stream begins with %q, %v", first, err)
		}

		return resp, cancel
	}
	over := func(what string) {
		t.Helper()

		select {
		case <-ended:
		case <-time.After(launch.Patience):
			t.Errorf("the agent was not informed that %s", what)
		}
	}
	_, cancel := stream(0)
	cancel()
	over("the client has gone")
	resp, _ := stream(1)

	must(t, syscall.Kill(p.Domains[0].Nodes[1].PID, syscall.SIGTERM))

	if rest, err := io.ReadAll(resp.Body); err != nil ||
		!strings.HasPrefix(string(rest), "event: error\ndata: {\"error\":{\"code\":\"Unavailable\"") {
		t.Errorf("the stream of a node that stops ends with %q, %v", rest, err)
	}

	over("the node has gone")

	lines, text := readTrail(t, p.Domains[0].Nodes[0].Data)

	var intents, ok int
	for _, l := range lines {
		if l.Action == "invoke" && l.Agent == "translator" && strings.HasSuffix(l.Actor, "/agent/bob") &&
			strings.HasPrefix(l.Owner, "spiffe://beta.test/") {
			switch {
			case l.Phase == "intent":
				intents++
			case l.Outcome == "ok":
				ok++
			}
		}
	}

	if intents < 4 || ok < 2 || strings.Contains(text, "canary") {
		t.Errorf("%d intents and %d that succeeded: %.2000s", intents, ok, text)
	}
}
