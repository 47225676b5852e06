package registration

import (
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// Lifetimes bounds how long registrations are granted to callers.
type Lifetimes struct {
	// Min is the shortest lifetime that may be asked for, in seconds.
	Min uint32
	// Credentials is how many lifetimes of its registrant's credential a registration is
	// granted at most (jimenez 8.2); 0 is any number.
	Credentials uint32
	// Callers returns bounds of some callers in place of Min; nil is none.
	Callers func() []admission.CallerLimits
}

// of returns the first bounds for a caller with a bound; nil if there are none.
func (l *Lifetimes) of(caller admission.Caller, has func(*admission.CallerLimits) bool) *admission.CallerLimits {
	if l.Callers == nil {
		return nil
	}

	callers := l.Callers()
	for i := range callers {
		if has(&callers[i]) && callers[i].Covers(caller) {
			return &callers[i]
		}
	}

	return nil
}

// parse reads lt; standard seconds if it is absent. A lifetime under the caller's minimum
// is refused: with a longer one, the registration would outlive the time that its agent asked for.
func (l *Lifetimes) parse(call *request.Call, standard uint32) (uint32, error) {
	shortest := l.shortest(call)
	if standard != 0 {
		standard = max(standard, shortest)
	}

	lt, err := call.Params.Lifetime(standard)
	if err == nil {
		err = l.CheckMin(call, lt)
	}

	return lt, err
}

// CheckMin refuses a lifetime that is under the caller's minimum; 0 asks for no lifetime.
func (l *Lifetimes) CheckMin(c *request.Call, lt uint32) error {
	if shortest := l.shortest(c); lt != 0 && lt < shortest {
		return directory.Refuse(directory.BadLifetime, "lt must be at least %d seconds for you, got %d", shortest, lt)
	}

	return nil
}

// shortest is the shortest lifetime that the caller may ask for, in seconds.
func (l *Lifetimes) shortest(c *request.Call) uint32 {
	own := l.of(c.Caller(), func(limits *admission.CallerLimits) bool { return limits.MinLifetime > 0 })
	if own != nil {
		return own.MinLifetime
	}

	return l.Min
}

// Cap returns the lifetime that this caller is granted of the one that it asks for, with
// this credential (AD-070), in seconds.
func (l *Lifetimes) Cap(call *request.Call, lifetime uint32) uint32 {
	own := l.of(call.Caller(), func(limits *admission.CallerLimits) bool { return limits.MaxLifetime > 0 })
	if own != nil {
		lifetime = min(lifetime, own.MaxLifetime)
	}

	if l.Credentials == 0 || call.Credential.Life <= 0 {
		return lifetime
	}

	longest := max(directory.MinLifetime, float64(l.Credentials)*call.Credential.Life.Seconds())

	return uint32(min(float64(lifetime), longest))
}

// CapRefresh is Cap of a refresh: without a lifetime, of the one that e was granted. e is
// nil if this node doesn't have the registration.
func (l *Lifetimes) CapRefresh(call *request.Call, lifetime uint32, entry *directory.Entry) uint32 {
	if lifetime != 0 || entry == nil {
		return l.Cap(call, lifetime)
	}

	if longest := l.Cap(call, entry.Lifetime); longest < entry.Lifetime {
		return longest
	}

	return 0
}
