package directory

import "github.com/spiffe/go-spiffe/v2/spiffeid"

// MaxCount is how many registrations one page of a lookup holds at most.
const MaxCount = 100

// A Query is a lookup (jimenez 5.1): all that is set must match. Name, CapName,
// CapType and Tag are conjunctive lists on one single capability, but for Agent
// and Protocol, which are the agent's own.
type Query struct {
	Agent    []Pattern
	Protocol []string
	CapName  []Pattern
	CapType  []string
	Tag      []string
	Status   []string
	Language []string
	Origin   spiffeid.TrustDomain // zero for all
	Own      bool                 // scope=domain: the own domain's only
	After    Cursor               // zero for the beginning
	Skip     int                  // page*count, where no cursor is given
	Count    int                  // 1 to MaxCount
}

// A Pattern matches a whole name, or its beginning where Prefix is set.
type Pattern struct {
	Text   string
	Prefix bool
}

// A Cursor is a position in the stable order of all registrations: the own
// domain's by Created, then the other domains' by (origin, rid). Any member
// continues it.
type Cursor struct {
	Created uint64 // of an own registration, when Origin is zero
	Origin  spiffeid.TrustDomain
	RID     RID
}
