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
	tokenAgain  = 10 * time.Second // after the source failed
	tokenBefore = 20 * time.Second // before its end it is replaced
)

// tokens keeps a token for each audience, because making one may be slow.
type tokens struct {
	from Tokens

	mu  sync.Mutex // guards the fields below
	all map[string]token
}

// A token is good until a time. Its source is asked again at another; an empty text means
// that it had no token.
type token struct {
	text         string
	until, again time.Time
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
	had := t.all[audience]
	t.mu.Unlock()

	if time.Now().Before(had.again) {
		return had.text
	}

	// The source may be slow, so it is asked without the lock. The result is kept for all
	// callers, so it must not depend on whether this one stays.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenWait)
	defer cancel()

	text, until, err := t.from.JWTSVID(ctx, audience)

	return t.keep(audience, token{text, until, until.Add(-tokenBefore)}, err)
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

// keep keeps a token, or the failure to make one, and returns the text to send. A token
// that is still good outlives a failure.
func (t *tokens) keep(audience string, k token, err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()

	if err != nil {
		now := time.Now()
		k = token{again: now.Add(tokenAgain)}

		if had := t.all[audience]; now.Before(had.until) {
			k.text, k.until = had.text, had.until
			if k.until.Before(k.again) {
				k.again = k.until
			}
		}
	}

	for old := range t.all {
		if len(t.all) < maxTokens {
			break
		}

		delete(t.all, old)
	}

	t.all[audience] = k

	return k.text
}
