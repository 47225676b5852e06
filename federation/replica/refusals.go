package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A RefusalLog counts accepted and refused messages, and logs refusals.
type RefusalLog struct {
	Log      *slog.Logger
	ByOrigin counts // by the origin that a message names, if that is known
	BySender counts // refusals, by the domain whose node brought the message
	Lines    logLimiter
}

// Refused counts a refusal for the sender and, if known, for the origin that the message
// names. It logs each code at most once a second per sender, so that a flood of messages
// doesn't flood the log. It returns err, or the Refusal in it.
func (l *RefusalLog) Refused(from Sender, text string, err error) error {
	var r *protocol.Refusal
	if !errors.As(err, &r) {
		return err
	}

	l.ByOrigin.Add(r.Origin, r.Code)
	l.BySender.Add(from.Domain, r.Code)

	// The origin's nodes get this refusal in the standing header. A relay may replay an old message.
	if from.Domain == r.Origin {
		l.ByOrigin.refused(r.Origin, r.Code)
	}

	if l.Lines.Allow(r.Code, from.Domain) {
		level := slog.LevelWarn

		switch r.Code {
		// Of a node that has just joined or was removed, and of a peering that begins or ends.
		case protocol.CodeKeyUnknown, protocol.CodeOriginUnknown:
			level = slog.LevelInfo
		case protocol.CodeDistrusted: // that was logged once
			level = slog.LevelDebug
		}

		l.Log.LogAttrs(context.Background(), level, "refused a message", slog.String("code", string(r.Code)),
			slog.String("origin", r.Origin.Name()), slog.String("from", from.Domain.Name()), slog.Any("err", r.Err),
			slog.Int("bytes", len(text)), slog.String("sha256", fmt.Sprintf("%x", directory.HashOf([]byte(text)))))
	}

	return r
}

// refusalsEach is the time between two log lines of one code and sending domain.
const refusalsEach = time.Second

// logLimiter allows one line a second for each code and sending domain, so that the messages
// of one domain don't keep those of another out of the log. Only peers and the own domain
// cause lines; the zero domain stands for an unknown sender.
type logLimiter struct {
	mu   sync.Mutex
	last map[refusal]time.Time
}

func (r *logLimiter) Allow(code protocol.Code, from spiffeid.TrustDomain) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	now, key := time.Now(), refusal{code, from}
	if t, ok := r.last[key]; ok && now.Sub(t) < refusalsEach {
		return false
	}

	if r.last == nil {
		r.last = map[refusal]time.Time{}
	}

	r.last[key] = now

	return true
}

type refusal struct {
	code protocol.Code
	from spiffeid.TrustDomain
}

// counts counts messages by domain and code.
type counts struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]map[protocol.Code]uint64
	own map[spiffeid.TrustDomain]LastRefusal // of messages from the domain's own nodes
}

// A LastRefusal is the last refusal of a message that an origin's own node sent.
type LastRefusal struct {
	Code protocol.Code
	At   time.Time
}

func (c *counts) refused(td spiffeid.TrustDomain, code protocol.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.own == nil {
		c.own = map[spiffeid.TrustDomain]LastRefusal{}
	}

	c.own[td] = LastRefusal{code, time.Now()}
}

// Last returns the last refusal of a message that an origin's own node sent; zero for none.
func (c *counts) Last(td spiffeid.TrustDomain) LastRefusal {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.own[td]
}

// Add counts a message of a domain, or of none.
func (c *counts) Add(td spiffeid.TrustDomain, code protocol.Code) {
	if td.IsZero() {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.all == nil {
		c.all = map[spiffeid.TrustDomain]map[protocol.Code]uint64{}
	}

	if c.all[td] == nil {
		c.all[td] = map[protocol.Code]uint64{}
	}

	c.all[td][code]++
}

// Forget drops a domain's counts.
func (c *counts) Forget(td spiffeid.TrustDomain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, td)
	delete(c.own, td)
}

// Of returns a copy of one domain's counts.
func (c *counts) Of(td spiffeid.TrustDomain) map[protocol.Code]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := map[protocol.Code]uint64{}
	for k, v := range c.all[td] {
		out[k] = v
	}

	return out
}
