package api

import (
	"cmp"
	"log/slog"
	"net/http"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/agents"
	"github.com/roster-mesh/roster/api/mcp"
	"github.com/roster-mesh/roster/api/request"
)

// A route is one row of the table: a method at a path, who may call it, the level at which
// a call that succeeds is logged, and its handler. Braces in a path hold the name of one
// variable segment.
type route struct {
	method, path string
	who          audience
	log          slog.Level
	handle       request.Handler
}

// The levels of calls that succeed. The calls of quiet routes are many, and metrics count
// them. Those of notable routes change something, or leave the domain; if the audit log has
// a call, it is logged as quiet.
const (
	quiet   = slog.LevelDebug
	notable = slog.LevelInfo
)

// An audience says who may call a route, and how calls are counted.
type audience struct {
	level  level
	class  admission.Class // of the rate limit that a call counts against
	action string          // of an operator's route
	stream bool            // the answer has no end, so there is no HEAD
	calls  bool            // it invokes an agent
	work   admission.Work  // under overload
	bare   admission.Work  // without a body, if that is other work
	pool   admission.Pool  // in which a call takes a place
	body   int64           // most bytes of a body that isn't of the common size
}

// maxNodeBody bounds the body of a node's request in bytes: the largest that federation
// takes, whose handlers have lower bounds.
const maxNodeBody = 4 << 20

// maxBody returns how many bytes of a body the route takes; 0 if it takes none.
func (r *route) maxBody() int64 {
	if r.method != http.MethodPost && r.method != http.MethodPut {
		return 0
	}

	return cmp.Or(r.who.body, request.MaxBody)
}

// A level is who may call a route.
type level int

const (
	levelAnyone     level = iota // callers are not authenticated
	levelReader                  // policy filters what is shown, to anonymous callers too
	levelIdentified              // a verified identity
	levelOperator                // a verified identity that policy lets operate
	levelNode                    // the handler authorises nodes itself
	levelTool                    // authorised by the routes that tools request
)

var (
	anyone     = audience{level: levelAnyone, class: admission.Public}
	guest      = audience{level: levelAnyone, class: admission.Writes}
	reader     = audience{level: levelReader, class: admission.Reads, work: admission.LookupWork}
	watcher    = audience{level: levelReader, class: admission.Reads, stream: true, pool: admission.WatchPool}
	querier    = audience{level: levelReader, class: admission.Queries, work: admission.QueryWork}
	identified = audience{level: levelIdentified, class: admission.Writes, work: admission.RegisterWork}
	updater    = audience{
		level: levelIdentified, class: admission.Writes, work: admission.RegisterWork, bare: admission.RefreshWork,
	}
	refresher = audience{level: levelIdentified, class: admission.Writes, work: admission.RefreshWork}
	node      = audience{level: levelNode, class: admission.Federation, pool: admission.NodePool, body: maxNodeBody}
	// A message to the tools counts as a read. The request of a tool has its own class.
	toolUser = audience{level: levelTool, class: admission.Reads, body: mcp.MaxMessage}
)

// invoker are callers whose input to an agent has at most body bytes.
func invoker(body int64) audience {
	return audience{
		level: levelReader, class: admission.Invocations, calls: true, pool: admission.InvocationPool,
		body: cmp.Or(body, agents.DefaultMaxInvocation),
	}
}

func operatorOf(action string) audience {
	return audience{level: levelOperator, class: admission.Operations, action: action}
}

// taking returns the audience of a route that takes a body of at most that many bytes.
func (a audience) taking(body int64) audience {
	a.body = body
	return a
}
