package limit

import (
	"container/list"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// A Kind of caller decides which part of a pool it may use.
type Kind int

// The kinds of callers.
const (
	Stranger Kind = iota // no verified identity; an address
	Foreign              // an identity of another domain
	Own                  // an identity of the own domain
)

// A Caller is the party that a use of a pool counts against.
type Caller struct {
	Kind Kind
	// ID is the caller's identity, or a stranger's address.
	ID string
	// Group is the domain of a foreign caller, or a stranger's network, if it has one:
	// several callers that are one party. A group has twice the share of one of its callers.
	Group string
}

// StrangerAt returns the party of a connection's other end, host:port: an IPv4 address, or a
// /64 of IPv6 with its /48 as the group.
func StrangerAt(remote string) Caller {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}

	addr, err := netip.ParseAddr(host)
	if err != nil {
		return Caller{Kind: Stranger, ID: host}
	}

	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return Caller{Kind: Stranger, ID: addr.String()}
	}

	return Caller{
		Kind:  Stranger,
		ID:    netip.PrefixFrom(addr, 64).Masked().String(),
		Group: netip.PrefixFrom(addr, 48).Masked().String(),
	}
}

// A Scope is the part of a pool that is used up.
type Scope string

// The scopes of a ShareError.
const (
	ScopeCaller    Scope = "caller"    // the share of one identity or address
	ScopeGroup     Scope = "group"     // the share of one foreign domain or one network
	ScopeStrangers Scope = "strangers" // the share of all strangers
	ScopeForeign   Scope = "foreign"   // the share of all foreign domains
	ScopeAll       Scope = "all"       // the part of the pool for callers of that kind
)

// A ShareError refuses a use of a pool.
type ShareError struct {
	Scope Scope
	Limit int64 // of the scope
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("limit: the share of %s is used up; it is %d", e.Scope, e.Limit)
}

// OfCaller reports whether the caller itself, or its group, holds all that it may. If not,
// the pool is short because of others.
func (e *ShareError) OfCaller() bool { return e.Scope == ScopeCaller || e.Scope == ScopeGroup }

// SharesConfig divides a pool. Divide makes that of a pool of a node.
type SharesConfig struct {
	Places int64 // of the pool: requests, bytes or other units

	Strangers int64 // of all strangers together
	Network   int64 // of one network of strangers
	Address   int64 // of one stranger's address

	Foreign   int64 // of all foreign domains together
	Domain    int64 // of one foreign domain
	ForeignID int64 // of one identity of a foreign domain

	OwnID int64 // of one identity of the own domain

	ForOwn       int64 // that only the own domain may use
	ForOperators int64 // besides ForOwn, that only operators may use

	// Operator reports whether an identity of the own domain is an operator. It is asked
	// only when the other places are taken. Nil means that there are no operators.
	Operator func(id string) bool
}

// undivided is the size up to which a pool reserves nothing: reserved places would be too
// large a part of it.
const undivided = 16

// The parts of a pool that callers may use, and those that are reserved (rule S3). They keep one caller and
// one domain from taking so many places that others get none.
const (
	strangersPart = 1. / 4  // of all strangers together; a network of them has half of it, an address a quarter
	foreignPart   = 1. / 2  // of all foreign domains together
	domainPart    = 1. / 8  // of one foreign domain
	foreignIDPart = 1. / 16 // of one identity of a foreign domain
	ownIDPart     = 1. / 8  // of one identity of the own domain

	forOwnPart       = 1. / 8  // that only the own domain may use
	forOperatorsPart = 1. / 32 // besides, that only operators may use
)

// Divide divides n places. Each caller may use one at least, and operators have two of their own at
// least.
func Divide(n int64, operator func(id string) bool) SharesConfig {
	part := func(of float64) int64 { return max(1, int64(float64(n)*of)) }
	cfg := SharesConfig{
		Places:    n,
		Strangers: part(strangersPart),
		Network:   part(strangersPart / 2),
		Address:   part(strangersPart / 4),
		Foreign:   part(foreignPart),
		Domain:    part(domainPart),
		ForeignID: part(foreignIDPart),
		OwnID:     part(ownIDPart),
		Operator:  operator,
	}

	if n > undivided {
		cfg.ForOwn = int64(float64(n) * forOwnPart)
		cfg.ForOperators = max(2, int64(float64(n)*forOperatorsPart))
	}

	return cfg
}

// Shares is a pool of places that is divided between callers, so that neither one caller
// nor one domain takes all of them. A use may take several places. With Take a use has its
// places at once or is refused; Wait waits for one.
//
// It holds no caller without a place, and is safe for concurrent use.
type Shares struct {
	cfg SharesConfig

	mu      sync.Mutex // guards the fields below
	held    int64
	of      [Own + 1]int64   // by kind
	callers map[string]int64 // by ID
	groups  map[string]int64 // by group
	waiting list.List        // of *shareWaiter, the first that came in front
}

// A shareWaiter waits for a place.
type shareWaiter struct {
	caller Caller
	ready  chan struct{} // closed once the place is taken for it
}

// NewShares returns a pool of which no place is taken.
func NewShares(cfg SharesConfig) *Shares {
	return &Shares{cfg: cfg, callers: map[string]int64{}, groups: map[string]int64{}}
}

// Take takes places for a caller until release is called, which may be called twice. If the
// caller may not have so many, release is nil, and refused has the reason.
func (s *Shares) Take(caller Caller, places int64) (release func(), refused *ShareError) {
	refused = s.take(caller, places, s.reserved(caller))

	// The policy that knows operators is not asked about every use.
	if refused != nil && refused.Scope == ScopeAll && caller.Kind == Own && s.cfg.Operator != nil &&
		s.cfg.Operator(caller.ID) {
		refused = s.take(caller, places, 0)
	}

	if refused != nil {
		return nil, refused
	}

	return func() { s.release(caller, &places) }, nil
}

// Wait takes a place for a caller once there is one for it, or returns ctx's error. A place goes to
// the first that waits and may have it. None waits for the places of operators.
func (s *Shares) Wait(ctx context.Context, caller Caller) (release func(), err error) {
	release, refused := s.Take(caller, 1)
	if refused == nil {
		return release, nil
	}

	s.mu.Lock()
	waits := &shareWaiter{caller, make(chan struct{})}
	place := s.waiting.PushBack(waits)
	s.admit() // a place may have come back meanwhile
	s.mu.Unlock()

	held := int64(1)
	release = func() { s.release(caller, &held) }

	select {
	case <-waits.ready:
		return release, nil
	case <-ctx.Done():
	}

	s.mu.Lock()
	s.waiting.Remove(place) // no change if it was admitted meanwhile
	s.mu.Unlock()

	// The place may have been given between the end of the wait and the lock.
	select {
	case <-waits.ready:
		release()
	default:
	}

	return nil, ctx.Err()
}

// admit gives free places to those that wait. The lock is held.
func (s *Shares) admit() {
	for place := s.waiting.Front(); place != nil && s.held < s.cfg.Places; {
		next, first := place.Next(), place.Value.(*shareWaiter)

		// A waiter whose share is used up does not hold up the waiters behind it.
		if s.refuse(first.caller, 1, s.cfg.Places-s.reserved(first.caller)) == nil {
			s.waiting.Remove(place)
			s.count(first.caller, 1)
			close(first.ready)
		}

		place = next
	}
}

// reserved returns how many places are for callers that rank higher, operators among them.
func (s *Shares) reserved(caller Caller) int64 {
	if caller.Kind == Own {
		return s.cfg.ForOperators
	}

	return s.cfg.ForOwn + s.cfg.ForOperators
}

// take counts places, of which some are reserved for callers that rank higher.
func (s *Shares) take(caller Caller, places, reserved int64) *ShareError {
	s.mu.Lock()
	defer s.mu.Unlock()

	if refused := s.refuse(caller, places, s.cfg.Places-reserved); refused != nil {
		return refused
	}

	s.count(caller, places)

	return nil
}

// count adds places to those that a caller holds; places may be negative. The lock is held.
func (s *Shares) count(caller Caller, places int64) {
	s.held += places
	s.of[caller.Kind] += places

	add(s.callers, caller.ID, places)

	if caller.Group != "" {
		add(s.groups, caller.Group, places)
	}
}

// refuse returns the narrowest scope that has too few places; open is how many of the pool
// the caller may use. The lock is held.
func (s *Shares) refuse(caller Caller, places, open int64) *ShareError {
	each, group := s.cfg.OwnID, int64(0)
	all, scope := s.cfg.Places, ScopeAll

	switch caller.Kind {
	case Stranger:
		each, group = s.cfg.Address, s.cfg.Network
		all, scope = s.cfg.Strangers, ScopeStrangers
	case Foreign:
		each, group = s.cfg.ForeignID, s.cfg.Domain
		all, scope = s.cfg.Foreign, ScopeForeign
	}

	switch {
	case s.callers[caller.ID]+places > each:
		return &ShareError{ScopeCaller, each}
	case caller.Group != "" && s.groups[caller.Group]+places > group:
		return &ShareError{ScopeGroup, group}
	case s.of[caller.Kind]+places > all:
		return &ShareError{scope, all}
	case s.held+places > open:
		return &ShareError{ScopeAll, open}
	}

	return nil
}

// release gives places back, and sets them to 0.
func (s *Shares) release(caller Caller, places *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.count(caller, -*places)
	*places = 0

	s.admit()
}

// add adds places to a key, and deletes a key that has none left.
func add(held map[string]int64, key string, places int64) {
	if held[key] += places; held[key] <= 0 {
		delete(held, key)
	}
}

// Held returns the number of places that are taken.
func (s *Shares) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.held
}
