// Package wire has the JSON types of a directory's HTTP surface: what its
// answers and the bodies of requests are read into. The server in package api
// and the client in package api/client share it, so both ends of a format stand
// in one place. It imports the standard library and go-spiffe's spiffeid alone.
//
// Times are RFC 3339. Lifetimes are whole seconds, in members called lt. A
// reader ignores members that it does not know: later releases add some.
package wire

import "time"

// Bounds that both ends know.
const (
	// MaxBody bounds the body of a request, in bytes. A backup and a policy have
	// bounds of their own.
	MaxBody = 64 << 10
	// MaxRenewals bounds the registrations that one request refreshes.
	MaxRenewals = 1000
	// DefaultLifetime is the lifetime of a registration that asks for none.
	DefaultLifetime = 24 * time.Hour
	// MaxWait bounds the time for which a directory waits for a position, in seconds.
	MaxWait = 60
	// Heartbeat is the longest time in which nothing is sent on an open stream.
	Heartbeat = 15 * time.Second
)

// Media types of the surface.
const (
	MediaJSON    = "application/json"
	MediaProblem = "application/problem+json" // RFC 9457
	MediaEvents  = "text/event-stream"
	MediaBackup  = "application/octet-stream"
)

// HeaderNodes is the field of a request that asks for the domain's other nodes, and of the
// answer that names them: their base URLs, separated by commas.
const HeaderNodes = "Roster-Nodes"

// HeaderWithout is the field of an answer that names the domains whose registrations the node does not
// show, because it is short of memory, separated by commas. Only callers of the node's domain get it.
const HeaderWithout = "Roster-Without"

// Paths of requests.
const (
	OwnedPath  = "/v1/operator/registrations"
	AuditPath  = "/v1/operator/audit"         // the node's audit log
	BundlePath = "/.well-known/spiffe-bundle" // the domain's trust bundle (SPIFFE Federation, 5)
	RedeemPath = "/v1/peerings"
)
