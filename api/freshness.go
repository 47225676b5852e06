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

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Times for which a read waits for the positions in min, in whole seconds.
const (
	defaultWait = 5
	maxWait     = wire.MaxWait
)

// A consistency says which state of this node's own domain a read is answered from. Other
// domains' registrations are as fresh as their positions say, whatever the consistency;
// min waits for newer ones.
type consistency string

const (
	// defaultRead reads this node's state, if its leader was heard recently.
	defaultRead consistency = "default"
	// staleRead reads this node's state, however old.
	staleRead consistency = "stale"
	// linearizableRead reads a state that has everything that was acknowledged at any node
	// before the read, confirmed by a majority. Without a majority it is refused at once.
	linearizableRead consistency = "linearizable"
)

// A freshness makes sure that this node's state is as fresh as a read asks for.
type freshness struct {
	cfg   *Config
	pools *admission.Pools
}

// ensure waits until this node's state is as fresh as a read asks for, or refuses the read.
// It says in Roster-Index and Roster-Stale how fresh the state is (OPS-017), and to callers of the
// domain in Roster-Without which domains it lacks.
func (f *freshness) ensure(w http.ResponseWriter, call *request.Call) error {
	response.Private(w)

	ask, err := parseFreshness(call.Params)
	if err == nil {
		err = f.wait(call, ask)
	}

	// A read that is refused learns how fresh the state is, too.
	heard := f.cfg.Registry.Heard()
	w.Header().Set("Roster-Index", f.index(ask.min))
	w.Header().Set("Roster-Stale", strconv.FormatInt(int64(math.Floor(heard.Seconds())), 10))

	if id, known := call.Identity.SPIFFE(); known && id.MemberOf(f.cfg.Domain) {
		if domains := f.cfg.Without(); len(domains) > 0 {
			w.Header().Set(wire.HeaderWithout, strings.Join(domains, ", "))
		}
	}

	switch {
	case err != nil || ask.consistency != defaultRead:
		return err
	case heard > f.cfg.MaxStale:
		return directory.Refuse(directory.Unavailable,
			"this node lost contact with its leader %d s ago; default reads allow %d s. "+
				"Use consistency=stale to read its present state", int(heard.Seconds()), int(f.cfg.MaxStale.Seconds()))
	case f.readsOwn(call) && !f.cfg.CaughtUp():
		return directory.Refuse(directory.Unavailable, "this node was just started and has not caught up with %s yet. "+
			"Try again, ask for another domain's origin, or use consistency=stale to read its present state",
			f.cfg.Domain)
	}

	return nil
}

// current refuses if this node doesn't know the present state of its domain.
func (f *freshness) current() error {
	heard := f.cfg.Registry.Heard()
	if heard <= f.cfg.MaxStale && f.cfg.CaughtUp() {
		return nil
	}

	return directory.Refuse(directory.Unavailable,
		"this node doesn't know the present state of its domain; it lost contact with its leader %d s ago",
		int(heard.Seconds()))
}

// originRoutes are the routes with a filter called origin; others ignore it.
var originRoutes = []string{"/ad/l", "/ad/watch", "/agents"}

// readsOwn tells whether a read's answer may have registrations of the own domain.
func (f *freshness) readsOwn(call *request.Call) bool {
	origin, mirrored := call.Vars["origin"]
	if !mirrored && slices.Contains(originRoutes, call.Route) {
		var err error
		if origin, err = call.Params.One("origin"); err != nil {
			return false // the handler reports the error
		}
	}

	return origin == "" || origin == f.cfg.Domain.Name()
}

// wait waits until this node has reached all positions of a read, for ask.wait together,
// and then for a linearizable state if it asks for one.
func (f *freshness) wait(call *request.Call, ask freshRead) error {
	if err := f.awaitAll(call, ask); err != nil {
		return err
	}

	if ask.consistency == linearizableRead {
		return f.cfg.Registry.Linearize(call.Context())
	}

	return nil
}

func (f *freshness) awaitAll(call *request.Call, ask freshRead) error {
	if lost := slices.IndexFunc(ask.min, f.isLost); lost >= 0 {
		return directory.Refuse(directory.PositionLost,
			"%s is a position of an earlier epoch and was lost by a restore; this node has %s. Read without it",
			directory.FormatIndex(ask.min[lost].domain, ask.min[lost].at), f.position(ask.min[lost].domain))
	}

	// A read that needn't wait takes no place.
	if f.hasAll(ask.min) {
		return nil
	}

	leave, err := f.pools.Take(admission.AwaitingPool, call.Caller(), 1)
	if err != nil {
		return err
	}

	defer leave()

	ctx, cancel := context.WithTimeout(call.Context(), ask.wait)
	defer cancel()

	for _, m := range ask.min {
		// The position may have come just as the wait ended.
		if err := f.cfg.Await(ctx, m.domain, m.at); err != nil && f.position(m.domain).Before(m.at) {
			return f.notReached(m, ask.wait)
		}
	}

	return nil
}

func (f *freshness) notReached(minimum minimum, wait time.Duration) error {
	has := "it has " + f.position(minimum.domain).String()
	if f.position(minimum.domain) == (directory.Position{}) {
		has = "it has nothing of that domain"
	}

	return directory.Refuse(directory.Unavailable, "this node did not reach %s within %d s; %s",
		directory.FormatIndex(minimum.domain, minimum.at), int(wait.Seconds()), has)
}

// isLost reports whether a position is of an earlier epoch and can't be known to be part of
// the history: the domain's own up to the restored revision are, another domain's never.
func (f *freshness) isLost(m minimum) bool {
	if m.at.Epoch >= f.position(m.domain).Epoch {
		return false
	}

	return m.domain != f.cfg.Domain || m.at.Revision > f.cfg.Registry.Restored()
}

func (f *freshness) hasAll(min []minimum) bool {
	return !slices.ContainsFunc(min, func(m minimum) bool { return f.position(m.domain).Before(m.at) })
}

// position is that of a domain's history at this node; zero if it is not known.
func (f *freshness) position(td spiffeid.TrustDomain) directory.Position {
	if td == f.cfg.Domain {
		return f.cfg.Registry.Position()
	}

	if at, ok := f.cfg.Position(td); ok {
		return at
	}

	return directory.Position{}
}

// index is Roster-Index: the own domain's position, and those of the domains in min that
// are known.
func (f *freshness) index(min []minimum) string {
	text := directory.FormatIndex(f.cfg.Domain, f.cfg.Registry.Position())
	for _, m := range min {
		if at, ok := f.cfg.Position(m.domain); ok && m.domain != f.cfg.Domain {
			text = response.AddIndex(text, m.domain, at)
		}
	}

	return text
}

// A freshRead is the freshness that a read asks for: a consistency, and the positions that
// its answer must have reached.
type freshRead struct {
	consistency
	min  []minimum
	wait time.Duration
}

type minimum struct {
	domain spiffeid.TrustDomain
	at     directory.Position
}

// parseFreshness reads consistency, min and wait.
func parseFreshness(params request.Params) (ask freshRead, err error) {
	ask = freshRead{consistency: defaultRead, wait: defaultWait * time.Second}
	switch mode, err := params.One("consistency"); {
	case err != nil:
		return ask, err
	case mode == string(staleRead), mode == string(linearizableRead):
		ask.consistency = consistency(mode)
	case mode != "" && mode != string(defaultRead):
		return ask, directory.Refuse(directory.BadQuery,
			"consistency must be default, stale or linearizable, got %.40q", mode)
	}

	if ask.min, err = parseMinimums(params); err != nil {
		return ask, err
	}

	text, err := params.One("wait")
	if err != nil || !params.Has("wait") {
		return ask, err
	}

	seconds, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seconds > maxWait {
		return ask, directory.Refuse(directory.BadQuery,
			"wait must be a whole number of seconds from 0 to %d, got %.40q", maxWait, text)
	}

	ask.wait = time.Duration(seconds) * time.Second

	return ask, nil
}

// parseMinimums reads min, which may be repeated. One may have several positions, as
// Roster-Index has them.
func parseMinimums(params request.Params) (all []minimum, err error) {
	if !params.Has("min") {
		return nil, nil
	}

	values, err := params.Decode([]string{"min"})
	if err != nil {
		return nil, err
	}

	for _, v := range values["min"] {
		for text := range strings.SplitSeq(v, ",") {
			text = strings.Trim(text, " ")

			td, at, err := directory.ParseIndex(text)
			if err != nil || directory.FormatIndex(td, at) != text {
				return nil, directory.Refuse(directory.BadQuery,
					"min must be DOMAIN=EPOCH.REVISION, as in Roster-Index, got %.100q", text)
			}

			all = append(all, minimum{td, at})
		}
	}

	return all, nil
}
