package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// specSecret, with its message below, is the example of Standard Webhooks' libraries.
const specSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A signature is the one that the specification's own libraries make.
//
// Requirement: LOG-026
func TestSignaturesAreThoseOfTheSpecification(t *testing.T) {
	key, err := parseSecret(specSecret + "\n")
	if err != nil {
		t.Fatal(err)
	}

	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Malformed secrets, and URLs without a host or in the clear, are refused, and no error shows a secret.
func TestSecretsAndURLsAreChecked(t *testing.T) {
	for _, c := range []struct{ url, secret, want string }{
		{"https://hooks.example/x", specSecret, ""},
		{"http://127.0.0.1:9/x", specSecret, ""},
		{"http://[::1]/x", specSecret, ""},
		{"http://localhost/x", specSecret, ""},
		{"https://hooks.example/x", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_"},
		{"https://hooks.example/x", "whsec_MfKQ9r8G", "24 to 64 bytes"},
		{"https://hooks.example/x", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa!!", "base64"},
		{"http://hooks.example/x", specSecret, "must be https, or http on loopback"},
		{"https://me:hidden@hooks.example/x", specSecret, "must not hold a user"},
		{"hooks.example", specSecret, "must be an absolute URL"},
		{"", specSecret, "need each other"},
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(c.secret), 0o600); err != nil {
			t.Fatal(err)
		}

		flags := Flags{url: c.url, secret: file}

		switch _, err := flags.Open(&cli.Console{}); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.url, err)
		case c.want != "" && (err == nil || cli.FailureOf(err).Code != cli.ExitUsage):
			t.Errorf("%s with %s: got %v, want a refusal", c.url, c.secret, err)
		case c.want != "" && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "GKYq") ||
			strings.Contains(err.Error(), "hidden")):
			t.Errorf("%s with %s: got %v", c.url, c.secret, err)
		}
	}
}

// A receiver answers the attempts in turn, the last answer again and again.
type receiver struct {
	answers []func() (int, string) // status and Retry-After; 0 is no answer
	at      []time.Time
	heads   []http.Header
	bodies  []string
	urls    []string
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}

	status, after := r.answers[min(len(r.at), len(r.answers)-1)]()

	r.at = append(r.at, time.Now())
	r.heads = append(r.heads, req.Header)
	r.bodies = append(r.bodies, string(body))
	r.urls = append(r.urls, req.URL.String())

	if status == 0 {
		<-req.Context().Done() // slow without end
		return nil, req.Context().Err()
	}

	header := http.Header{}
	if after != "" {
		header.Set("Retry-After", after)
	}

	if status == http.StatusFound {
		header.Set("Location", "http://169.254.169.254/")
	}

	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Request: req,
		Body: io.NopCloser(strings.NewReader("hello"))}, nil
}

func answers(status int, after string) func() (int, string) {
	return func() (int, string) { return status, after }
}

func sender(t *testing.T, r *receiver) (*Sender, *bytes.Buffer) {
	t.Helper()

	key, err := parseSecret(specSecret)
	if err != nil {
		t.Fatal(err)
	}

	var notes bytes.Buffer

	return NewSender(&url.URL{Scheme: "https", Host: "hooks.example", Path: "/x"}, key,
		&cli.Console{Stderr: &notes}, r), &notes
}

// A message is sent until the receiver takes it: each time with one ID and one body, signed anew, to the one URL,
// after growing pauses, and after as long as the receiver asks for.
//
// Requirement: LOG-026
func TestAMessageIsSentUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answers: []func() (int, string){answers(500, ""), answers(302, ""), answers(0, ""),
			answers(404, ""), answers(429, "120"), answers(204, "")}}
		s, notes := sender(t, r)
		message := &Message{ID: "msg_1", Type: "agent.added", At: time.Unix(1, 0), Data: []byte(`{"agent":"a"}`)}

		if err := s.Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}

		if len(r.at) != 6 {
			t.Fatalf("sent %d times", len(r.at))
		}

		for i, head := range r.heads {
			at, body := head.Get("webhook-timestamp"), r.bodies[i]
			if head.Get("webhook-id") != "msg_1" || body != r.bodies[0] || r.urls[i] != "https://hooks.example/x" ||
				head.Get("webhook-signature") != sign(s.key, "msg_1", at, []byte(body)) {
				t.Errorf("attempt %d: %v %s to %s", i, head, body, r.urls[i])
			}
		}

		if want := `{"type":"agent.added","timestamp":"1970-01-01T00:00:01Z","data":{"agent":"a"}}`; r.bodies[0] != want {
			t.Errorf("the body is %s", r.bodies[0])
		}

		if pause := r.at[5].Sub(r.at[4]); pause < 2*time.Minute || pause > 3*time.Minute {
			t.Errorf("after Retry-After: 120 it is sent again in %s", pause)
		}

		if slow := r.at[3].Sub(r.at[2]); slow < sendWithin || slow > sendWithin+10*time.Second {
			t.Errorf("after no answer it is sent again in %s", slow)
		}

		if got := notes.String(); !strings.Contains(got, "redirects are not followed") ||
			!strings.Contains(got, "takes messages again") || strings.Count(got, "\n") != 6 {
			t.Errorf("notes:\n%s", got)
		}
	})
}

// A receiver that is away for a day is asked every five minutes or so, and noted once. One that answers 410
// ends the delivery.
//
// Requirement: LOG-026
func TestAReceiverThatStaysAwayIsAskedOnAndOneThatIsGoneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answers: []func() (int, string){answers(503, "")}}
		s, notes := sender(t, r)

		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()

		if err := s.Send(ctx, &Message{ID: "msg_1", Data: []byte("{}")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}

		if n := len(r.at); n < 200 || n > 600 || strings.Count(notes.String(), "\n") != 1 {
			t.Errorf("sent %d times in a day; notes:\n%s", n, notes)
		}

		gone, _ := sender(t, &receiver{answers: []func() (int, string){answers(410, "")}})

		err := gone.Send(t.Context(), &Message{ID: "msg_2", Data: []byte("{}")})
		if err == nil || cli.FailureOf(err).Code != cli.ExitRefused || !strings.Contains(err.Error(), "410 Gone") {
			t.Errorf("got %v", err)
		}
	})
}
