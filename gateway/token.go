package gateway

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Tokens makes what this node shows to an agent: a JWT-SVID (draft-cui, 7).
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
	tokenBefore = 20 * time.Second // its end another is had
)

// tokens keeps a token for each audience, since whoever makes them may be slow.
type tokens struct {
	from Tokens

	mu  sync.Mutex // guards what follows
	all map[string]token
}

// A token is good until a time. With an empty text there is none until then.
type token struct {
	text  string
	until time.Time
}

func (t *tokens) init(from Tokens) { t.from, t.all = from, map[string]token{} }

// of returns the token for an endpoint's agent; "" where there is none. Its audience
// is where it goes and not what a registration says: an agent that could name the
// audience would be given what lets it speak as this node to another.
func (t *tokens) of(ctx context.Context, endpoint string) string {
	if t.from == nil {
		return ""
	}

	target, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}

	audience := audienceOf(target)
	t.mu.Lock()
	had, ok := t.all[audience]
	t.mu.Unlock()

	if now := time.Now(); ok && (now.Add(tokenBefore).Before(had.until) || had.text == "" && now.Before(had.until)) {
		return had.text
	}

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
