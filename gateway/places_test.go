package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/limit"
)

// An agent has its place back after every invocation, however that ends: after each kind of
// failure, and after each kind of stream, the one place of an agent is free at once.
//
// Requirement: AI-040
func TestPlacesOfAnAgentComeBack(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.Concurrent, c.PerSecond = 1, 1e6 })
	agent := s.agent(t, misbehave)
	gone := s.agent(t, echo)
	gone.Close()

	at := func(endpoint string) *directory.Entry { return aidip(t, endpoint, `"operations": [`+translate+`]`) }
	good := at(agent.URL)
	tools := entry(t, directory.KindAD, "translator", fmt.Sprintf(`{"base": %q, "protocols": ["mcp"]}`, agent.URL))
	card := entry(t, directory.KindA2A, "translator",
		fmt.Sprintf(`{"name": "A", "description": "D", "version": "1", "url": %q, "skills": []}`, agent.URL))

	for name, tc := range map[string]struct {
		e      *directory.Entry
		body   string
		stream bool
		read   int64 // bytes of a stream before it is closed; 0 is to its end
		cancel bool  // the caller goes away meanwhile
	}{
		"an answer":                      {e: good, body: `{"text": "a"}`},
		"an input against the schema":    {e: good, body: `{"text": 5}`},
		"an operation that isn't there":  {e: good, body: `{"operation": "none", "input": {}}`},
		"a body that is no JSON":         {e: good, body: `{"text"`},
		"an answer against the schema":   {e: good, body: `{"text": "wrong"}`},
		"an answer that is no JSON":      {e: good, body: `{"text": "garbage"}`},
		"an answer that is packed":       {e: good, body: `{"text": "packed"}`},
		"an answer that is too large":    {e: good, body: `{"text": "large"}`},
		"a refusal":                      {e: good, body: `{"text": "refuse"}`},
		"a connection that breaks":       {e: good, body: `{"text": "break"}`},
		"a caller that goes away":        {e: good, body: `{"text": "wait"}`, cancel: true},
		"nobody there":                   {e: at(gone.URL), body: `{"text": "a"}`},
		"an address that is refused":     {e: at("https://10.0.0.1/"), body: `{"text": "a"}`},
		"plain http":                     {e: at("http://127.0.0.1:8080/"), body: `{"text": "a"}`},
		"an MCP server that is none":     {e: tools, body: `{"text": "garbage"}`},
		"an A2A agent that is none":      {e: card, body: `{"text": "garbage"}`},
		"a batch":                        {e: good, body: `[{"text": "a"}, {"text": 5}, {"text": "break"}]`},
		"a stream to its end":            {e: good, body: `{"text": "stream"}`, stream: true},
		"a stream that is closed early":  {e: good, body: `{"text": "endless"}`, stream: true, read: 100},
		"a stream that breaks":           {e: good, body: `{"text": "stream-break"}`, stream: true},
		"a stream whose reader has gone": {e: good, body: `{"text": "endless"}`, stream: true, read: 100, cancel: true},
		"a batch answered by streams":    {e: good, body: `[{"text": "stream"}]`, stream: true},
	} {
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			if tc.cancel && !tc.stream {
				called := waiting(cancel)
				defer called()
			}

			reply, err := s.Invoke(ctx, tc.e, invoke.Request{Body: []byte(tc.body), Stream: tc.stream,
				Caller: directory.IdentityOf(beta)})
			if directory.ProblemOf(err) == directory.RateLimited {
				t.Fatalf("%s: the place of the one before is taken", name)
			}

			if err == nil && reply.Stream != nil {
				if tc.read == 0 {
					_, _ = io.Copy(io.Discard, reply.Stream)
				} else {
					_, _ = io.CopyN(io.Discard, reply.Stream, tc.read)
				}

				if tc.cancel {
					cancel()
				}

				reply.Stream.Close()
			}

			cancel()

			if _, err := invokeAgent(s, good, "", `{"text": "a"}`); err != nil {
				t.Fatalf("after %s: %v", name, err)
			}
		}
	}
}

var waitStarted = make(chan struct{}, 16)

// waiting cancels a caller once its request has reached the agent.
func waiting(cancel context.CancelFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-waitStarted:
			cancel()
		case <-done:
		}
	}()

	return func() { close(done) }
}

// misbehave is an agent that does what its input says.
func misbehave(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	asked := func(what string) bool { return strings.Contains(string(body), `"`+what+`"`) }

	w.Header().Set("Content-Type", "application/json")

	switch {
	case asked("wrong"):
		io.WriteString(w, `{"words": 1}`)
	case asked("garbage"):
		io.WriteString(w, `garbage`)
	case asked("packed"):
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, `{"text": "a"}`)
	case asked("large"):
		fmt.Fprintf(w, `{"text": %q}`, strings.Repeat("x", gateway.DefaultMaxBody))
	case asked("refuse"):
		w.WriteHeader(http.StatusServiceUnavailable)
	case asked("break"):
		panic(http.ErrAbortHandler)
	case asked("wait"):
		waitStarted <- struct{}{}
		<-r.Context().Done()
	case asked("stream"), asked("endless"), asked("stream-break"):
		w.Header().Set("Content-Type", "text/event-stream")

		for n := 0; n < 10 || asked("endless") && r.Context().Err() == nil; n++ {
			io.WriteString(w, "data: {\"text\": \"a\"}\n\n")
			w.(http.Flusher).Flush()
		}

		if asked("stream-break") {
			panic(http.ErrAbortHandler)
		}
	default:
		io.WriteString(w, `{"text": "a"}`)
	}
}

// Neither one caller nor one domain takes all places of an agent, by streams that are not read. A
// batch of a caller whose share is used up waits, and others are answered meanwhile.
//
// Requirement: AI-040, SEC-004
func TestPlacesOfAnAgentAreShared(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.PerSecond = 1e6 })
	e := aidip(t, s.agent(t, misbehave).URL, `"operations": [`+translate+`]`)

	streams := func(callers ...limit.Caller) (held int) {
		for _, caller := range callers {
			for range gateway.DefaultConcurrent {
				reply, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text": "endless"}`), Stream: true,
					Caller: directory.IdentityOf(beta), Party: caller})
				if err != nil {
					if directory.ProblemOf(err) != directory.RateLimited {
						t.Fatal(err)
					}

					break
				}

				held++

				t.Cleanup(func() { reply.Stream.Close() })
			}
		}

		return held
	}

	of := func(domain string, count int) (callers []limit.Caller) {
		for n := range count {
			callers = append(callers, limit.Caller{Kind: limit.Foreign, ID: fmt.Sprint(domain, "/", n), Group: domain})
		}

		return callers
	}

	if held := streams(of("beta.test", 1)...); held != 4 {
		t.Errorf("one identity of another domain holds %d of 64 places, want 4", held)
	}

	if held := streams(of("beta.test", 20)...); held != 4 {
		t.Errorf("the others of its domain hold %d, want 4", held)
	}

	if held := streams(of("gamma.test", 1)...); held != 4 {
		t.Errorf("an identity of a third domain holds %d, want 4", held)
	}

	busy := limit.Caller{Kind: limit.Own, ID: "busy"}
	if held := streams(busy); held != 8 {
		t.Errorf("an identity of the domain holds %d, want 8", held)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)

	go func() {
		_, err := s.Invoke(ctx, e, invoke.Request{Body: []byte(`[{"text": "a"}]`), Caller: directory.IdentityOf(beta),
			Party: busy})
		ended <- err
	}()

	if _, err := invokeAgent(s, e, "", `{"text": "a"}`); err != nil {
		t.Errorf("another caller: %v", err)
	}

	cancel()

	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error("a batch went beyond its caller's share")
	}
}

// Neither one domain nor all other domains use up the rate of an agent.
//
// Requirement: AI-040, SEC-004
func TestTheRateOfAnAgentIsShared(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.PerSecond = 100 })
	e := aidip(t, s.agent(t, misbehave).URL, `"operations": [`+translate+
		`], "rate_limit": {"requests_per_second": 16}`)

	flood := func(kind limit.Kind, domain string) (answered int) {
		for answered < 100 {
			caller := limit.Caller{Kind: kind, ID: fmt.Sprint(domain, "/", answered), Group: domain}

			if _, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text": "a"}`),
				Caller: directory.IdentityOf(beta), Party: caller}); err != nil {
				break
			}

			answered++
		}

		return answered
	}

	began := time.Now()
	one, two := flood(limit.Foreign, "beta.test"), flood(limit.Foreign, "gamma.test")
	own := flood(limit.Own, "")

	// At once 4 of each domain, and the rest for the own one; and what the time adds.
	added := int(time.Since(began).Seconds()*16) + 1
	if one < 4 || one > 4+added || two < 4-added || two > 4+added || own < 8-added {
		t.Errorf("a domain gets %d, another %d, and the own one %d, of 16", one, two, own)
	}
}
