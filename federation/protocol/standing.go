package protocol

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// HeaderStanding is the header by which a node tells a peer's node, in each answer and interim
// response, how it sees that node's domain.
const HeaderStanding = "Roster-Standing"

// Bounds of a standing. Longer texts are cut off; a longer header is ignored.
const (
	maxStanding = 2 << 10
	maxReason   = 200
)

// StandingNone is the state of a domain that is no peer.
const StandingNone = "none"

// A Standing is how a node sees the domain that asks it. All of it is that node's word.
type Standing struct {
	State    string             // of replica.PeerStatus, or StandingNone
	Position directory.Position // of the asking domain's stream, as far as it is applied there
	Page     time.Time          // issue of the newest applied page; zero for none
	Error    string             // why the asking domain can't be followed; "" for none
	Evidence string             // ID of the evidence for which the domain is frozen
	Code     Code               // of the last message of the domain that was refused; "" for none
	Refused  time.Time          // when that was
}

// String returns the header's value.
func (s Standing) String() string {
	values := url.Values{"state": {s.State}}

	for name, value := range map[string]string{
		"error":    s.Error[:min(len(s.Error), maxReason)],
		"evidence": s.Evidence,
		"code":     string(s.Code),
	} {
		if value != "" {
			values.Set(name, value)
		}
	}

	if s.Position != (directory.Position{}) {
		values.Set("position", s.Position.String())
	}

	for name, at := range map[string]time.Time{"page": s.Page, "refused": s.Refused} {
		if !at.IsZero() {
			values.Set(name, strconv.FormatInt(at.Unix(), 10))
		}
	}

	return values.Encode()
}

// ParseStanding reads the header of an answer. It ignores members that it doesn't know, and
// leaves out those that it can't read. ok is false without a state.
func ParseStanding(header http.Header) (s Standing, ok bool) {
	text := header.Get(HeaderStanding)
	if text == "" || len(text) > maxStanding {
		return s, false
	}

	values, err := url.ParseQuery(text)
	if err != nil || values.Get("state") == "" {
		return s, false
	}

	s = Standing{
		State:    printable(values.Get("state")),
		Error:    printable(values.Get("error")),
		Evidence: printable(values.Get("evidence")),
		Code:     Code(printable(values.Get("code"))),
		Page:     unixTime(values.Get("page")),
		Refused:  unixTime(values.Get("refused")),
	}

	_ = s.Position.UnmarshalText([]byte(values.Get("position"))) // unchanged on an error

	return s, true
}

// printable returns a text of another domain for an operator's terminal: cut off, and without
// any character but printable ASCII.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}

		return r
	}, text[:min(len(text), maxReason)])
}

// unixTime reads seconds up to the year 9999; zero for anything else.
func unixTime(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 || seconds > 253402300799 {
		return time.Time{}
	}

	return time.Unix(seconds, 0)
}

// RejectsCertificate reports whether err is the other side's TLS alert: it doesn't accept this
// node's certificate.
func RejectsCertificate(err error) bool {
	var op *net.OpError

	return errors.As(err, &op) && op.Op == "remote error"
}
