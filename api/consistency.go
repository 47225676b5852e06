package api

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// How long a read waits for what min names, in whole seconds.
const (
	defaultWait = 5
	maxWait     = wire.MaxWait
)

// How many reads wait at once for what min names, of all callers and of one.
const (
	maxAwaiting     = 4096
	maxAwaitingEach = 256
)

// A consistency says which state a read is answered from, of this node's own
// domain. What is of other domains is what this node has received: it is as fresh
// as Reached says, whatever the consistency, and min is the way to wait for more.
type consistency string

const (
	// byDefault reads this node's state, as long as its leader was heard of late.
	byDefault consistency = "default"
	// stale reads this node's state, however old.
	stale consistency = "stale"
	// linearizable reads a state that has all that was acknowledged at any node
	// before the read, confirmed by a majority. Without one it is refused at once.
	linearizable consistency = "linearizable"
)

// A freshness is what a read asks for: a consistency, and the positions that its
// answer must have.
type freshness struct {
	consistency
	min  []minimum
	wait time.Duration
}

type minimum struct {
	domain spiffeid.TrustDomain
	at     directory.Position
}

// parseFreshness reads consistency, min and wait.
func parseFreshness(ps params) (f freshness, err error) {
	f = freshness{consistency: byDefault, wait: defaultWait * time.Second}
	switch mode, err := ps.one("consistency"); {
	case err != nil:
		return f, err
	case mode == string(stale), mode == string(linearizable):
		f.consistency = consistency(mode)
	case mode != "" && mode != string(byDefault):
		return f, directory.Refuse(directory.BadQuery, "consistency is %.40q; it is default, stale or linearizable", mode)
	}
	if f.min, err = parseMinimums(ps); err != nil {
		return f, err
	}
	text, err := ps.one("wait")
	if err != nil || !ps.has("wait") {
		return f, err
	}
	seconds, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seconds > maxWait {
		return f, directory.Refuse(directory.BadQuery, "wait is %.40q; it is a whole number of seconds from 0 to %d", text, maxWait)
	}
	f.wait = time.Duration(seconds) * time.Second
	return f, nil
}

// parseMinimums reads min, which may be repeated. One may name several positions
// as Roster-Index does.
func parseMinimums(ps params) (all []minimum, err error) {
	if !ps.has("min") {
		return nil, nil
	}
	values, err := ps.decode([]string{"min"})
	if err != nil {
		return nil, err
	}
	for _, v := range values["min"] {
		for text := range strings.SplitSeq(v, ",") {
			text = strings.Trim(text, " ")
			td, at, err := directory.ParseIndex(text)
			if err != nil || directory.FormatIndex(td, at) != text {
				return nil, directory.Refuse(directory.BadQuery, "min is %.100q; it is DOMAIN=EPOCH.REVISION, as Roster-Index has it", text)
			}
			all = append(all, minimum{td, at})
		}
	}
	return all, nil
}

// reading makes sure that this node's state is as fresh as a read asks for, and
// tells in Roster-Index and Roster-Stale how fresh it is (http.md, "Reading" and
// "Read your writes, anywhere"; OPS-017).
func (s *Server) reading(w http.ResponseWriter, c *call) error {
	private(w)
	f, err := parseFreshness(c.params)
	if err == nil {
		err = s.freshen(c, f)
	}
	heard := s.cfg.Registry.Heard()
	w.Header().Set("Roster-Index", s.index(f.min))
	w.Header().Set("Roster-Stale", strconv.FormatInt(int64(math.Floor(heard.Seconds())), 10))
	switch {
	case err != nil || f.consistency != byDefault:
		return err
	case heard > s.cfg.MaxStale:
		return directory.Refuse(directory.Unavailable,
			"This node last heard its leader %d s ago, longer than the %d s that default reads allow. Ask with consistency=stale for what it has.",
			int(heard.Seconds()), int(s.cfg.MaxStale.Seconds()))
	case s.asksOwn(c) && !s.cfg.Settled():
		return directory.Refuse(directory.Unavailable,
			"This node was just started and does not know yet what %s has. Ask again, name another domain's origin, or ask with consistency=stale for what is here.", s.cfg.Domain)
	}
	return nil
}

// byOrigin are the routes that have a filter called so; others ignore it.
var byOrigin = []string{"/ad/l", "/ad/watch", "/agents"}

// asksOwn is whether what a read asks for may be of the own domain.
func (s *Server) asksOwn(c *call) bool {
	origin, mirrored := c.vars["origin"]
	if !mirrored && slices.Contains(byOrigin, c.route) {
		var err error
		if origin, err = c.params.one("origin"); err != nil {
			return false // the handler says what is wrong with it
		}
	}
	return origin == "" || origin == s.cfg.Domain.Name()
}

// freshen waits for what f asks for.
func (s *Server) freshen(c *call, f freshness) error {
	if err := s.awaitAll(c, f); err != nil {
		return err
	}
	if f.consistency == linearizable {
		return s.cfg.Registry.Linearize(c.Context())
	}
	return nil
}

// awaitAll waits until this node has reached all positions of f.min, for f.wait
// together.
func (s *Server) awaitAll(c *call, f freshness) error {
	if s.hasAll(f.min) {
		return nil
	}
	leave, hasShare := s.awaiting.enter(callerOf(c))
	switch {
	case hasShare:
		return directory.Refuse(directory.RateLimited, "%d reads of yours wait for other positions at this node, as many as one caller's may: wait for them, or ask without min.", maxAwaitingEach)
	case leave == nil:
		return directory.Refuse(directory.Unavailable, "Too many reads wait for other positions at this node; ask another, or again.")
	}
	defer leave()
	ctx, cancel := context.WithTimeout(c.Context(), f.wait)
	defer cancel()
	for _, m := range f.min {
		if err := s.cfg.Await(ctx, m.domain, m.at); err != nil && s.position(m.domain).Before(m.at) {
			has := "it has " + s.position(m.domain).String()
			if s.position(m.domain) == (directory.Position{}) {
				has = "it has nothing of that domain"
			}
			return directory.Refuse(directory.Unavailable, "This node did not reach %s within %d s; %s.", directory.FormatIndex(m.domain, m.at), int(f.wait.Seconds()), has)
		}
	}
	return nil
}

func (s *Server) hasAll(min []minimum) bool {
	return !slices.ContainsFunc(min, func(m minimum) bool { return s.position(m.domain).Before(m.at) })
}

// position is how far a domain's history has come here; zero where it is not
// known.
func (s *Server) position(td spiffeid.TrustDomain) directory.Position {
	if td == s.cfg.Domain {
		return s.cfg.Registry.Position()
	}
	if at, ok := s.cfg.Reached(td); ok {
		return at
	}
	return directory.Position{}
}

// index is Roster-Index: the own domain's position, and those of the domains that
// min names, as far as they are known.
func (s *Server) index(min []minimum) string {
	text := directory.FormatIndex(s.cfg.Domain, s.cfg.Registry.Position())
	for _, m := range min {
		if at, ok := s.cfg.Reached(m.domain); ok && m.domain != s.cfg.Domain {
			text = withIndex(text, m.domain, at)
		}
	}
	return text
}

// withIndex adds a domain's position to a Roster-Index that may have it already.
func withIndex(index string, td spiffeid.TrustDomain, at directory.Position) string {
	if strings.Contains(index, " "+td.Name()+"=") {
		return index
	}
	return index + ", " + directory.FormatIndex(td, at)
}
