package gateway_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/gateway"
)

// Why an agent was not reached is told to its owner, by class, and to the operator; others learn
// that nothing was sent, if that is so.
func TestWhyAnAgentWasNotReached(t *testing.T) {
	var log bytes.Buffer

	operator := directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/ops/operator"))
	s := newStage(t, func(c *gateway.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Operates = func(id directory.Identity) bool { return id == operator }
	})

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	foreign := serve(t, newCA(t, "").leaf(t, "127.0.0.1", alpha, func(c *x509.Certificate) { c.URIs = nil }),
		http.NotFoundHandler())
	cut := s.agent(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

	for address, want := range map[string]string{
		strings.Replace(plain.URL, "http:", "https:", 1): "tls: the server doesn't speak TLS; it may serve plain http",
		strings.Replace(gone.URL, "http:", "https:", 1):  "connect: the endpoint refuses connections",
		"https://nowhere.invalid":                        "name: the endpoint's host name doesn't resolve",
		foreign.URL:                                      "tls: 127.0.0.1 shows a certificate that neither web PKI",
		cut.URL:                                          "http: the server closed the connection",
	} {
		e := aidip(t, address, `"operations": [`+translate+`]`)
		sent := strings.HasPrefix(want, "http:")

		for caller, isTold := range map[directory.Identity]bool{
			e.Owner: true, operator: true, directory.IdentityOf(beta): false,
		} {
			log.Reset()

			in := invoke.Request{Body: []byte(`{"text":"a"}`), Caller: caller}

			_, err := s.Invoke(t.Context(), e, in)

			var told *directory.Error
			if !errors.As(err, &told) || told.Problem != directory.AgentFailed ||
				strings.Contains(told.Detail, want) != isTold ||
				strings.Contains(told.Detail, "nothing was sent") == sent ||
				!strings.Contains(log.String(), "calling an agent failed") {
				t.Errorf("%s, to %s: %v; log %s", address, caller, err, &log)
			}
		}
	}

	// Any caller causes a line by each call, so their rate is bounded.
	log.Reset()

	e := aidip(t, strings.Replace(gone.URL, "http:", "https:", 1), `"operations": [`+translate+`]`)
	for range 60 {
		_, _ = s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text":"a"}`), Caller: e.Owner})
	}

	if lines := strings.Count(log.String(), "calling an agent failed"); lines > 30 {
		t.Errorf("60 calls made %d lines", lines)
	}
}

// An agent that is later than the time that a call may take has been asked: the key is not given
// free, and a repetition doesn't ask it again.
//
// Requirement: AI-012
func TestAKeyOfACallThatTookTooLong(t *testing.T) {
	keys := domain(t)
	s := newStage(t, func(c *gateway.Config) { c.Claims, c.Timeout = keys, 300*time.Millisecond })

	var calls atomic.Int32

	agent := s.agent(t, func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		<-r.Context().Done()
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)

	for range 2 {
		_, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text":"a"}`),
			Caller: directory.IdentityOf(alpha), Key: "k"})
		if directory.ProblemOf(err) != directory.AgentTimeout || strings.Contains(err.Error(), "to you as") {
			t.Errorf("an agent that is late: %v", err)
		}
	}

	if n := calls.Load(); n != 1 {
		t.Errorf("the agent was called %d times", n)
	}
}
