package api

import (
	"net/http"
	"slices"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/catalog"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// table has every route of the API listener, grouped by who may call it. The router, HEAD,
// OPTIONS, 405 with Allow, rate limits and /openapi.json follow from it (AD-078). A new
// route needs its description in openapi.yaml; a test names the routes without one.
func (s *Server) table() []route {
	surfaces := &s.surfaces
	forced := s.orderCheck().maybeProven // an operator may force it

	routes := []route{
		// Anyone.
		{"GET", "/", anyone, quiet, surfaces.description.Home},
		{"GET", "/.well-known/ad", anyone, quiet, surfaces.wellKnown.AD},
		{"GET", "/.well-known/agent-discovery", anyone, quiet, surfaces.discovery.WellKnown},
		{"GET", "/.well-known/api-catalog", anyone, quiet, surfaces.description.Catalog},
		{"GET", catalog.WebOfAgentsPath, anyone, quiet, surfaces.webOfAgents.Get},
		{"GET", "/openapi.json", anyone, quiet, surfaces.description.OpenAPI},
		{"GET", "/schemas/{kind}.json", anyone, quiet, surfaces.description.Schema},
		{"GET", "/problems/{name}", anyone, quiet, surfaces.description.Problem},

		// Callers that policy lets read.
		{"GET", "/ad/l", reader, quiet, surfaces.ad.Lookup},
		{"GET", "/ad/watch", watcher, quiet, surfaces.watch.Watch},
		{"GET", "/ad/r/{id}", reader, quiet, surfaces.ad.Get()},
		{"GET", "/ad/r/{id}/record", reader, quiet, surfaces.ad.Record},
		{"GET", "/ad/r/{id}/proof", reader, quiet, surfaces.ad.Proof},
		{"GET", "/ad/r/{id}/audience", reader, quiet, surfaces.ad.Audience},
		{"GET", "/ad/r/{id}/transfer", reader, quiet, surfaces.ad.Offer},
		{"GET", "/ad/transfers", reader, quiet, surfaces.ad.Offers},
		{"GET", "/ad/r/{origin}/{id}", reader, quiet, surfaces.ad.Get()},
		{"GET", "/ad/r/{origin}/{id}/record", reader, quiet, surfaces.ad.Record},
		{"GET", "/ad/r/{origin}/{id}/proof", reader, quiet, surfaces.ad.Proof},
		{"GET", "/agents", reader, quiet, surfaces.agents.List},
		{"GET", "/agents/{id}", reader, quiet, surfaces.agents.Get()},
		{"POST", "/agents/search", querier, quiet, surfaces.agents.Search},
		{"GET", "/discovery/agents/{id}", reader, quiet, surfaces.discovery.Get()},
		{"POST", "/discovery/query", querier, quiet, surfaces.discovery.Query},

		// Callers that may make the requests of the tools.
		{"POST", "/mcp", toolUser, quiet, surfaces.mcp.Post},

		// A verified identity: to register if policy lets it, and then the owner and
		// commissioning tools.
		{"POST", "/ad/r", identified, notable, surfaces.ad.Register},
		{"POST", "/ad/r/{id}", updater, notable, surfaces.ad.Update},
		{"DELETE", "/ad/r/{id}", identified, notable, surfaces.ad.Writer.Remove},
		{"POST", "/ad/r/{origin}/{id}", updater, notable, surfaces.ad.Update},
		{"DELETE", "/ad/r/{origin}/{id}", identified, notable, surfaces.ad.Writer.Remove},
		{"POST", "/ad/r/{id}/transfer", identified, notable, forced(surfaces.ad.Transfer)},
		{"DELETE", "/ad/r/{id}/transfer", identified, notable, surfaces.ad.Withdraw},
		{"POST", "/ad/refresh", refresher, notable, surfaces.ad.RefreshMany},
		{"POST", "/agents", identified, notable, surfaces.agents.Publish},
		{"PUT", "/agents/{id}", identified, notable, surfaces.agents.Replace},
		{"DELETE", "/agents/{id}", identified, notable, surfaces.agents.Writer.Remove},
		{"POST", "/discovery/agents", identified, notable, surfaces.discovery.Publish},
		{"PUT", "/discovery/agents/{id}", identified, notable, surfaces.discovery.Replace},
		{"DELETE", "/discovery/agents/{id}", identified, notable, surfaces.discovery.Writer.Remove},
	}

	return append(append(routes, s.optionalRoutes()...), s.prove(s.operatorRoutes())...)
}

// optionalRoutes are those of the table whose parts a node may lack.
func (s *Server) optionalRoutes() (routes []route) {
	surfaces := &s.surfaces
	if s.cfg.Finder != nil {
		routes = append(routes, route{"POST", "/agents/resolve", querier, quiet, surfaces.agents.Resolve})
	}

	if s.cfg.Bundle != nil {
		routes = append(routes, route{"GET", wire.BundlePath, anyone, quiet, surfaces.wellKnown.TrustBundle})
	}

	if s.cfg.Past != nil {
		routes = append(routes,
			route{"GET", "/ad/r/{id}/history", reader, quiet, surfaces.ad.History},
			route{"GET", "/ad/r/{origin}/{id}/history", reader, quiet, surfaces.ad.History},
		)
	}

	if s.cfg.Ledger != nil {
		routes = append(routes,
			route{"GET", "/log/checkpoint", anyone, quiet, surfaces.ledger.Latest},
			route{"GET", "/log/{epoch}/checkpoint", anyone, quiet, surfaces.ledger.Checkpoint},
			route{"GET", "/log/{epoch}/policy", anyone, quiet, surfaces.ledger.Policy},
			route{"GET", "/log/{epoch}/start", anyone, quiet, surfaces.ledger.Start},
			route{"GET", "/log/{epoch}/tile/{tile}", anyone, quiet, surfaces.ledger.Tile},
		)
	}

	if s.cfg.Operator != nil { // it changes nothing, so it needs no proof
		routes = append(routes, route{"POST", "/v1/operator/policy/preview",
			operatorOf("policy.write").taking(operator.MaxPolicyBody), quiet, surfaces.policy.Preview})
	}

	if s.cfg.Bundles != nil {
		routes = append(routes,
			route{"GET", "/bundles/{domain}", anyone, quiet, surfaces.bundles.Get},
			route{"GET", "/bundles", operatorOf("bundle.read"), quiet, surfaces.bundles.List},
		)
	}

	if len(s.cfg.AcceptedCredentials.Issuers) > 0 {
		routes = append(routes, route{"GET", catalog.ProtectedResourcePath, anyone, quiet,
			surfaces.wellKnown.ProtectedResource})
	}

	// Callers that policy lets invoke the agent.
	if surfaces.invoke != nil {
		invoker := invoker(s.cfg.MaxInvocation)
		routes = append(routes,
			route{"POST", "/agents/{id}/invoke", invoker, notable, surfaces.invoke.Invoke},
			route{"POST", "/agents/{id}/{operation}", invoker, notable, surfaces.invoke.Invoke},
		)
	}

	if s.cfg.Witness != nil {
		witness := passTo(s.cfg.Witness)
		routes = append(routes,
			route{"POST", "/witness/add-checkpoint", guest, quiet, witness},
			route{"GET", "/witness/logs/v0", anyone, quiet, witness},
			route{"GET", "/witness/policy", anyone, quiet, witness},
			route{"GET", "/witness/{log}/checkpoint", anyone, quiet, witness},
		)
	}

	// Nodes of this domain and of its peers; the handler authorises them.
	if s.cfg.Federation != nil {
		federation := passTo(s.cfg.Federation)
		routes = append(routes,
			route{"GET", "/federation/v1/checkpoint", node, quiet, federation},
			route{"GET", "/federation/v1/heads", node, quiet, federation},
			route{"GET", "/federation/v1/keys", node, quiet, federation},
			route{"GET", "/federation/v1/pages", node, quiet, federation},
			route{"POST", "/federation/v1/records", node, quiet, federation},
			route{"POST", "/federation/v1/farewell", node, notable, federation},
			route{"POST", "/federation/v1/evidence", node, notable, federation},
			route{"GET", "/federation/v1/evidence", node, quiet, federation},
		)
	}

	return routes
}

// operatorRoutes are the routes of operators.
func (s *Server) operatorRoutes() (routes []route) {
	surfaces := &s.surfaces
	if s.cfg.Operator != nil {
		routes = append(routes,
			route{"GET", "/v1/operator/status", operatorOf("raft.read"), quiet, surfaces.status.Node},
			route{"GET", "/v1/operator/raft", operatorOf("raft.read"), quiet, surfaces.status.Raft},
			route{"GET", "/v1/operator/members", operatorOf("members.read"), quiet, surfaces.status.Members},
			route{"GET", "/v1/operator/peers", operatorOf("peer.read"), quiet, surfaces.status.Peers},
			route{"GET", "/v1/operator/peers/evidence", operatorOf("peer.read"), quiet, surfaces.status.Evidence},
			route{"POST", "/v1/operator/peers", operatorOf("peer.write"), notable, surfaces.peerings.Put},
			route{"GET", "/v1/operator/keys", operatorOf("keys.read"), quiet, surfaces.keys.List},
			route{"POST", "/v1/operator/keys/rotate", operatorOf("keys.write"), notable, surfaces.keys.Rotate},
			route{"POST", "/v1/operator/keys/revoke", operatorOf("keys.write"), notable, surfaces.keys.Revoke},
			route{"POST", "/v1/operator/history/erase", operatorOf("history.erase"), notable, surfaces.history.Erase},
			route{"GET", "/v1/operator/policy", operatorOf("policy.read"), quiet, surfaces.policy.Get},
			route{"PUT", "/v1/operator/policy", operatorOf("policy.write").taking(operator.MaxPolicyBody), notable,
				surfaces.policy.Set},
			route{"GET", wire.OwnedPath, operatorOf("registration.read"), quiet, surfaces.registrations.List},
			route{"POST", wire.OwnedPath + "/end", operatorOf("registration.write"), notable,
				surfaces.registrations.Remove},
		)
	}

	if s.cfg.Operator != nil {
		routes = append(routes, route{"GET", "/v1/operator/debug/pprof/{name}", operatorOf("debug.read"), notable,
			operator.Profile})
	}

	if s.cfg.Trail != nil {
		routes = append(routes, route{"GET", wire.AuditPath, operatorOf("audit.read"), quiet, surfaces.audit.Read})
	}

	if s.cfg.Operator != nil && s.cfg.Finder != nil {
		routes = append(routes,
			route{"GET", "/v1/operator/flagged", operatorOf("flagged.read"), quiet, surfaces.registrations.ListFlagged},
		)
	}

	if s.cfg.Peerings != nil {
		routes = append(routes,
			route{"POST", "/v1/operator/peers/invite", operatorOf("peer.write"), notable, surfaces.peerings.Invite},
			route{"POST", "/v1/operator/peers/accept", operatorOf("peer.write"), notable, surfaces.peerings.Accept},
			route{"POST", "/v1/operator/peers/change", operatorOf("peer.write"), notable, surfaces.peerings.Change},
			// The domain that has the secret of an invitation.
			route{"POST", wire.RedeemPath, guest, notable, surfaces.peerings.Redeem},
		)
	}

	if s.cfg.Cluster != nil {
		routes = append(routes,
			route{"POST", "/v1/operator/raft/transfer", operatorOf("raft.write"), notable, surfaces.cluster.Transfer},
			route{"POST", "/v1/operator/raft/remove", operatorOf("raft.write"), notable, surfaces.cluster.Remove},
			route{"POST", "/v1/operator/raft/admit", operatorOf("raft.write"), notable, surfaces.cluster.Admit},
			route{"POST", "/v1/operator/raft/leave", operatorOf("raft.write"), notable, surfaces.cluster.Leave},
			route{"POST", "/v1/operator/raft/clock", operatorOf("raft.write"), notable, surfaces.cluster.ConfirmClock},
		)
	}

	if s.cfg.Backups != nil {
		routes = append(routes,
			route{"GET", "/v1/operator/snapshot", operatorOf("snapshot.read"), notable, surfaces.backups.Save},
			route{"POST", "/v1/operator/snapshot", operatorOf("snapshot.write").taking(admission.Streamed), notable,
				surfaces.backups.Restore},
		)
	}

	return routes
}

// passTo hands calls to a handler that authorises them itself, and refuses by a problem
// with their request's id.
func passTo(handler http.Handler) request.Handler {
	return func(w http.ResponseWriter, c *request.Call) error {
		handler.ServeHTTP(w, c.Request)
		return nil
	}
}

// has tells whether this node has a route.
func (s *Server) has(method, path string) bool {
	return slices.ContainsFunc(s.table(), func(r route) bool { return r.method == method && r.path == path })
}

func (s *Server) orderCheck() orderCheck {
	return orderCheck{s.cfg.Orders, func() string {
		return directory.FormatIndex(s.cfg.Domain, s.cfg.Registry.Position())
	}}
}

// prove wraps the handlers of all routes that change something for operators.
func (s *Server) prove(routes []route) []route {
	check := s.orderCheck()

	for i, r := range routes {
		switch {
		case r.method == http.MethodGet || r.who.level != levelOperator:
		case r.who.action == "snapshot.write":
			routes[i].handle = check.provenStream(r.handle)
		default:
			routes[i].handle = check.indexed(check.proven(r.handle))
		}
	}

	return routes
}
