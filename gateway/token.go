package gateway

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Tokens makes the token that this node presents to an agent: a JWT-SVID (draft-cui, 7).
type Tokens interface {
	// JWTSVID returns a token of this node's identity for an audience, and until when
	// it is good.
	JWTSVID(ctx context.Context, audience string) (token string, until time.Time, err error)
}

// Bounds of the tokens that are kept.
const (
	maxTokens   = 1024
	tokenWait   = 2 * time.Second  // for one that is not kept
	tokenAgain  = 10 * time.Second // after there was none
	tokenBefore = 20 * time.Second // before its end it is replaced
)

// tokens keeps a token for each audience, because making one may be slow.
type tokens struct {
	from Tokens

	mu  sync.Mutex // guards the fields below
	all map[string]token
}

// A token is good until a time. An empty text means that the source has no token until then.
type token struct {
	text  string
	until time.Time
}

func (t *tokens) init(from Tokens) { t.from, t.all = from, map[string]token{} }

// of returns the token for an endpoint's agent; "" if there is none. Its audience is
// derived from the endpoint, not from the registration. An agent that could name the
// audience would receive a token with which it could speak as this node to another
// agent.
func (t *tokens) of(ctx context.Context, endpoint string) string {
	if t.from == nil {
		return ""
	}

	target, err := url.Parse(endpoint)

	// A bearer's token is shown to a verified server alone.
	if err != nil || target.Scheme != "https" {
		return ""
	}

	audience := audienceOf(target)
	t.mu.Lock()
	had, ok := t.all[audience]
	t.mu.Unlock()

	if now := time.Now(); ok && (now.Add(tokenBefore).Before(had.until) || had.text == "" && now.Before(had.until)) {
		return had.text
	}

	// The source may be slow, so it is asked without the lock.
	ctx, cancel := context.WithTimeout(ctx, tokenWait)
	defer cancel()

	text, until, err := t.from.JWTSVID(ctx, audience)
	if err != nil {
		text, until = "", time.Now().Add(tokenAgain)
	}

	t.keep(audience, token{text, until})

	return text
}

// audienceOf is an endpoint's scheme, host and port, without the port of https. An
// IPv6 address keeps its brackets: [::1]:8443 is another's than [::1:8443].
func audienceOf(target *url.URL) string {
	host := strings.ToLower(target.Hostname())
	if port := target.Port(); port != "" && port != "443" {
		return target.Scheme + "://" + net.JoinHostPort(host, port)
	}

	return target.Scheme + "://" + strings.TrimSuffix(net.JoinHostPort(host, ""), ":")
}

func (t *tokens) keep(audience string, k token) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for old := range t.all {
		if len(t.all) < maxTokens {
			break
		}

		delete(t.all, old)
	}

	t.all[audience] = k
}
