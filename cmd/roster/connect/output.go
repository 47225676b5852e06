package connect

import (
	"net/http"
	"time"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// outputVariable sets the format of output in place of -o.
const outputVariable = "ROSTER_OUTPUT"

// SetOutput takes the format of output from the environment unless -o gives one.
func (s *Session) SetOutput() error {
	text := s.settings.getenv(outputVariable)
	if text == "" || s.Format != "" {
		return nil
	}

	if err := s.Format.Set(text); err != nil {
		return cli.Usage("%s %w, got %q", outputVariable, err, text)
	}

	return nil
}

// A tracingTransport prints each request, for -v.
type tracingTransport struct {
	next    http.RoundTripper
	console *cli.Console
}

// RoundTrip implements http.RoundTripper.
func (t tracingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	resp, err := t.next.RoundTrip(r)

	outcome := ""
	if err != nil {
		outcome = cli.FirstLine(err.Error())
	} else {
		outcome = resp.Status + ", request id " + resp.Header.Get("X-Request-Id")
	}

	t.console.Say("%s %s: %s, %s", r.Method, r.URL, outcome, time.Since(begun).Round(time.Millisecond))

	return resp, err
}

// CloseIdleConnections closes those of the transport beneath.
func (t tracingTransport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}
