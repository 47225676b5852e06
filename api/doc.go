// Package api is the HTTP surface of a node: what registrants, clients, peers
// and operators see of a directory. Package api/client is the Go client for it, and
// api/wire has the JSON types that both share.
//
// One table names every route, grouped by who may call it. From it come the
// router, 405 with Allow, OPTIONS and HEAD. A handler returns an error instead
// of writing one, and errors.go turns it into the one problem body that all
// surfaces share:
//
//	s := api.New(api.Config{Domain: domain, PublicURL: url, Registry: store, View: view, …})
//	(&http.Server{Handler: s.Handler(), TLSConfig: …}).ServeTLS(listener, "", "")
//
// # Files
//
//	server                   the table of all routes
//	router, authn, credentials, ratelimit, shares, stack
//	                         a request's way to its row: who it is, and whether it may
//	body, form, params, surface, vetting, audit
//	                         what is asked, read and judged; the trail of changes
//	consistency, view*, items
//	                         how fresh a state is, and how a registration is shown
//	answer, unread, conditional, compress, errors
//	                         what is sent
//	ad_*                     /ad, draft-jimenez-agent-directory-01
//	discovery*               /discovery, draft-xu-efficient-agent-discovery-profile-00
//	agents*, invoke          /agents, draft-cui-ai-agent-discovery-invocation
//	woa*, wellknown          /.well-known, draft-gaikwad-woa and others
//	mcp*                     /mcp, and its tools on standard input and output
//	operator*                /v1/operator and peering
//	federation               /federation, whose handler is another package's
//	openapi*                 what a node says of its routes
//	admin                    the loopback listener
package api
