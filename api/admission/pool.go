package admission

import (
	"cmp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// Sizes are the sizes of a node's pools. The default replaces 0.
type Sizes struct {
	Requests    int // in progress, but those of the pools below
	Watches     int // streams of events
	Invocations int // in progress
	Nodes       int // requests of nodes in progress, at /federation
	Awaiting    int // reads that wait until this node has reached a position

	RequestBytes int64 // of bodies that are being read or worked on
	AnswerBytes  int64 // of answers of agents, and of those that clients have not read yet
}

// DefaultSizes are the sizes that a node has if configuration doesn't say otherwise.
var DefaultSizes = Sizes{
	Requests:     4096,
	Watches:      1024,
	Invocations:  1024,
	Nodes:        2048,
	Awaiting:     4096,
	RequestBytes: 256 << 20,
	AnswerBytes:  256 << 20,
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{
		Requests:     cmp.Or(s.Requests, DefaultSizes.Requests),
		Watches:      cmp.Or(s.Watches, DefaultSizes.Watches),
		Invocations:  cmp.Or(s.Invocations, DefaultSizes.Invocations),
		Nodes:        cmp.Or(s.Nodes, DefaultSizes.Nodes),
		Awaiting:     cmp.Or(s.Awaiting, DefaultSizes.Awaiting),
		RequestBytes: cmp.Or(s.RequestBytes, DefaultSizes.RequestBytes),
		AnswerBytes:  cmp.Or(s.AnswerBytes, DefaultSizes.AnswerBytes),
	}
}

// A dividedPool is divided between callers by rule S3, and refuses a caller that has its share.
type dividedPool struct {
	shares *limit.Shares
	of     string // what the pool has, in a refusal
	unit   int64  // in which a refusal counts
}

func (p *dividedPool) refusal(caller Caller, refused *limit.ShareError) *directory.Error {
	most := max(1, refused.Limit/p.unit)

	switch refused.Scope {
	case limit.ScopeCaller:
		return directory.Refuse(directory.RateLimited,
			"your share of this node's %s is used up: one caller may have %d. Wait until some have ended", p.of, most)
	case limit.ScopeGroup:
		return directory.Refuse(directory.RateLimited,
			"the share of %s of this node's %s is used up: all of its callers together may have %d. "+
				"Wait until some have ended", caller.Party.Group, p.of, most)
	default:
		return directory.Refuse(directory.Unavailable,
			"other callers use this node's %s up. Nothing was changed; try again later, or at another node", p.of)
	}
}

// A Pool is one of a node's pools.
type Pool int

// The pools of a node.
const (
	RequestPool    Pool = iota // requests in progress, but those of the pools below
	WatchPool                  // streams of events
	InvocationPool             // in progress
	NodePool                   // requests of nodes in progress, at /federation
	AwaitingPool               // reads that wait until this node has reached a position
	RefusalPool                // answers to calls that got no place of another pool, until they are sent

	RequestBytesPool // bytes of bodies that are being read or worked on
	AnswerBytesPool  // bytes of answers of agents, and of those that clients have not read yet

	poolCount
)

// Pools are the pools of a node.
type Pools [poolCount]dividedPool

// NewPools returns the pools of a node, with nothing taken. operator reports whether an
// identity of the own domain is an operator; see limit.SharesConfig.
func NewPools(sizes Sizes, operator func(id string) bool) *Pools {
	sizes = sizes.withDefaults()

	divided := func(of string, size, unit int64) dividedPool {
		return dividedPool{shares: limit.NewShares(limit.Divide(size, operator)), of: of, unit: unit}
	}

	return &Pools{
		RequestPool:      divided("requests in progress", int64(sizes.Requests), 1),
		WatchPool:        divided("watches", int64(sizes.Watches), 1),
		InvocationPool:   divided("invocations in progress", int64(sizes.Invocations), 1),
		NodePool:         divided("requests of nodes in progress", int64(sizes.Nodes), 1),
		AwaitingPool:     divided("reads that wait for positions", int64(sizes.Awaiting), 1),
		RefusalPool:      divided("refusals that are not read yet", maxRefusals, 1),
		RequestBytesPool: divided("memory for request bodies, in KiB,", sizes.RequestBytes, 1<<10),
		AnswerBytesPool:  divided("memory for answers that are not read yet, in KiB,", sizes.AnswerBytes, 1<<10),
	}
}

// Take takes places of a pool for a caller until release is called, or refuses them: RateLimited if
// the caller or its domain has its share, and Unavailable if others have the rest.
func (p *Pools) Take(pool Pool, caller Caller, places int64) (release func(), err error) {
	release, refused := p[pool].shares.Take(caller.Party, places)
	if refused == nil {
		return release, nil
	}

	return nil, &problem.Refusal{Err: p[pool].refusal(caller, refused), Retry: 1}
}

// Held returns how many places of a pool are taken.
func (p *Pools) Held(pool Pool) int64 { return p[pool].shares.Held() }

// maxRefusals bounds the refusals that clients have not read.
const maxRefusals = 512

const (
	// SmallBody is the size of an answer that is not counted: net/http buffers as much,
	// whether the client reads or not.
	SmallBody = 4 << 10

	perAnswer = 16 << 10 // bytes that each answer takes beside its body
)

// HoldAnswer counts the bytes of an answer for a caller until release is called, or refuses
// them. A page of large registrations has megabytes, may be requested hundreds of times a
// second, and may be read over minutes.
func (p *Pools) HoldAnswer(caller Caller, body int) (release func(), err error) {
	if body <= SmallBody {
		return func() {}, nil
	}

	return p.Take(AnswerBytesPool, caller, int64(body)+perAnswer)
}
