// Package webhook delivers events to the operator's receiver, to the letter of Standard Webhooks 1.0: signed by
// HMAC-SHA256 (v1), and sent until the receiver takes them.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory/egress"
)

// Bounds of a delivery.
const (
	sendWithin = 15 * time.Second // one attempt, as the specification advises
	longest    = 5 * time.Minute  // pause between two attempts, unless the receiver asks for a longer one
	longestAsk = time.Hour        // that the receiver may ask for
	maxAnswer  = 64 << 10
	maxSecret  = 1024

	secretPrefix = "whsec_"
	leastKey     = 24 // bytes of a secret, as the specification wants it
	mostKey      = 64
)

// Flags are those of a command that delivers.
type Flags struct{ url, secret string }

// Add adds the flags.
func (f *Flags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "webhook", "", "`URL` to which each event is sent by Standard Webhooks")
	c.Flags().StringVar(&f.secret, "secret", "", "`FILE` with the secret that signs what --webhook sends, whsec_BASE64")
}

// Open returns the sender; nil without --webhook.
func (f *Flags) Open(console *cli.Console) (*Sender, error) {
	switch {
	case f.url == "" && f.secret == "":
		return nil, nil //nolint:nilnil // nothing is delivered
	case f.url == "" || f.secret == "":
		return nil, cli.Usage("--webhook and --secret need each other")
	}

	text, err := console.ReadFile(f.secret, maxSecret)
	if err != nil {
		return nil, err
	}

	key, err := parseSecret(string(text))
	if err != nil {
		return nil, cli.Usage("the secret in %s %w", f.secret, err).
			WithHint("Make one: echo whsec_$(openssl rand -base64 32) > FILE")
	}

	target, err := parseURL(f.url)
	if err != nil {
		return nil, cli.Usage("--webhook %w", err)
	}

	// This transport has no client certificate and no token, so that the receiver gets neither.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{}).DialContext}

	return NewSender(target, key, console, transport), nil
}

// parseSecret reads a secret. Its text is in no error.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return nil, fmt.Errorf("must begin with %s", secretPrefix)
	}

	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) < leastKey || len(key) > mostKey {
		return nil, fmt.Errorf("must be %s and base64 of %d to %d bytes", secretPrefix, leastKey, mostKey)
	}

	return key, nil
}

// parseURL reads the receiver's URL: https, or http on loopback.
func parseURL(text string) (*url.URL, error) {
	target, err := url.Parse(text)

	switch {
	case err != nil || target.Host == "":
		return nil, errors.New("must be an absolute URL, https://HOST/PATH")
	case target.User != nil:
		return nil, errors.New("must not hold a user or a password: the secret authenticates messages")
	case target.Scheme == "https", target.Scheme == "http" && egress.IsLoopback(target.Hostname()):
		return target, nil
	}

	return nil, fmt.Errorf("must be https, or http on loopback, got %q", target.Redacted())
}

// A Message is an event to deliver. A message that is delivered again has the same ID, by which the receiver
// drops it.
type Message struct {
	ID   string         `json:"id"`
	Type string         `json:"type"`
	At   time.Time      `json:"at"`
	Data jsontext.Value `json:"data"`
}

// body is the payload, in the form that the specification recommends.
func (m *Message) body() ([]byte, error) {
	return json.Marshal(struct {
		Type string         `json:"type"`
		At   string         `json:"timestamp"`
		Data jsontext.Value `json:"data"`
	}{m.Type, m.At.UTC().Format(time.RFC3339Nano), m.Data})
}

// A Sender delivers messages to one receiver. It is safe for concurrent use.
type Sender struct {
	url     *url.URL
	key     []byte
	console *cli.Console
	client  *http.Client
}

// NewSender returns a sender to a URL, which signs by a key.
func NewSender(target *url.URL, key []byte, console *cli.Console, transport http.RoundTripper) *Sender {
	// A redirect could lead to a host that the operator did not name.
	return &Sender{target, key, console, &http.Client{
		Transport: transport, Timeout: sendWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Send delivers a message: it tries until the receiver takes it, ctx ends, or the receiver answers 410, which ends the
// delivery.
func (s *Sender) Send(ctx context.Context, m *Message) error {
	body, err := m.body()
	if err != nil {
		return err
	}

	var noted error

	for wait := apiclient.FirstRetry; ; wait = min(2*wait, longest) {
		asked, err := s.attempt(ctx, m.ID, body)

		var gone *goneError

		switch {
		case err == nil:
			if noted != nil {
				s.console.Note("The webhook receiver takes messages again.")
			}

			return nil

		// An error after the end of ctx is an effect of that.
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &gone):
			return cli.Failed(cli.ExitRefused, "the webhook receiver %s answered 410 Gone: it wants no more messages",
				s.url.Host).WithHint("Message %s was not taken.", m.ID)
		case !apiclient.SameCause(noted, err):
			noted = err
			s.console.Note("Cannot deliver message %s: %s; trying again.", m.ID, cli.NetworkCause(err))
		}

		// The receiver may ask for a longer pause, and not for a shorter one.
		if !apiclient.Pause(ctx, max(asked, apiclient.Jitter(wait))) {
			return ctx.Err()
		}
	}
}

// A goneError is the receiver's wish to get no more messages.
type goneError struct{ error }

// attempt sends a message once. It returns the pause that the receiver asks for.
func (s *Sender) attempt(ctx context.Context, id string, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}

	// Each attempt is signed with its own time, because receivers refuse old ones.
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "roster")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", now)
	req.Header.Set("Webhook-Signature", sign(s.key, id, now, body))

	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	// The connection can be used again once the body was read.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))

	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, int(longestAsk/time.Second))) * time.Second
	}

	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return 0, nil
	case status == http.StatusGone:
		return 0, &goneError{errors.New(resp.Status)}
	case status >= 300 && status < 400:
		return wait, fmt.Errorf("the receiver %s answered %s; redirects are not followed", s.url.Host, resp.Status)
	default:
		return wait, fmt.Errorf("the receiver %s answered %s", s.url.Host, resp.Status)
	}
}

// sign returns the signature of a message sent at a time.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, id+"."+timestamp+".")
	_, _ = mac.Write(body)

	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
