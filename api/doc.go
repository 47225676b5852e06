// Package api is the HTTP server of a node: the routes by which registrants, clients,
// peers, operators and model clients use a directory.
//
//	s := api.New(api.Config{Domain: domain, PublicURL: url, Registry: store, View: view, …})
//	(&http.Server{Handler: s.Handler(), TLSConfig: …}).ServeTLS(listener, "", "")
//
// # The way of a request
//
//	observe.go      the request's id, its log line, panics; bounds of its size
//	router.go       the route of the table (routes.go) that it matches
//	serve.go        authentication, rate limit, freshness (freshness.go), capacity
//	the handler     in the package of its surface
//	audit.go        the audit log, around everything that changes something
//	errors.go       the problem body, if the handler returns an error
//
// routes.go has one table with every route: its method and path, who may call it, the level
// at which a call is logged, and its handler. The router, HEAD, OPTIONS, 405 with Allow,
// rate limits and /openapi.json follow from it. openapi.yaml describes every route for
// people and for tools; a test names a route that it lacks.
//
// # Surfaces
//
// A surface is a package with its handlers and their parsers. Surfaces don't know each
// other, and write and read the same registrations:
//
//	ad              /ad, draft-jimenez-agent-directory-01
//	agents          /agents, draft-cui-ai-agent-discovery-invocation, and invocation
//	discovery       /discovery, draft-xu-efficient-agent-discovery-profile-00
//	mcp             /mcp, and its tools on standard input and output
//	operator        /v1/operator and /v1/peerings
//	catalog         /.well-known, draft-gaikwad-woa, and the description of the API
//
// They share:
//
//	request         a call: its caller, parameters, body and conditions
//	admission       rate limits, capacity and memory
//	access          questions to policy
//	registration    finding, showing and changing a registration
//	view            a registration in the shape of each draft
//	response        answers: JSON, entity tags, caching, compression
//	openapi         reads openapi.yaml
//
// The federation's handler is passed in (Config.Federation); the admin listener is
// NewAdmin. Package client is the Go client, and wire has the JSON types of both ends.
package api
