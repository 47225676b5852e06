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

	federation, witness := passTo(s.cfg.Federation), passTo(s.cfg.Witness)

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
		{"GET", "/bundles/{domain}", anyone, quiet, surfaces.bundles.Get},
		{"GET", "/log/checkpoint", anyone, quiet, surfaces.ledger.Latest},
		{"GET", "/log/{epoch}/checkpoint", anyone, quiet, surfaces.ledger.Checkpoint},
		{"GET", "/log/{epoch}/policy", anyone, quiet, surfaces.ledger.Policy},
		{"GET", "/log/{epoch}/start", anyone, quiet, surfaces.ledger.Start},
		{"GET", "/log/{epoch}/tile/{tile}", anyone, quiet, surfaces.ledger.Tile},
		{"GET", "/witness/logs/v0", anyone, quiet, witness},
		{"GET", "/witness/policy", anyone, quiet, witness},
		{"GET", "/witness/{log}/checkpoint", anyone, quiet, witness},
		{"POST", "/witness/add-checkpoint", guest, quiet, witness},
		// The domain that has the secret of an invitation.
		{"POST", wire.RedeemPath, guest, notable, surfaces.peerings.Redeem},

		// Callers that policy lets read.
		{"GET", "/ad/l", reader, quiet, surfaces.ad.Lookup},
		{"GET", "/ad/watch", watcher, quiet, surfaces.watch.Watch},
		{"GET", "/ad/r/{id}", reader, quiet, surfaces.ad.Get()},
		{"GET", "/ad/r/{id}/record", reader, quiet, surfaces.ad.Record},
		{"GET", "/ad/r/{id}/proof", reader, quiet, surfaces.ad.Proof},
		{"GET", "/ad/r/{id}/history", reader, quiet, surfaces.ad.History},
		{"GET", "/ad/r/{id}/audience", reader, quiet, surfaces.ad.Audience},
		{"GET", "/ad/r/{id}/transfer", reader, quiet, surfaces.ad.Offer},
		{"GET", "/ad/transfers", reader, quiet, surfaces.ad.Offers},
		{"GET", "/ad/r/{origin}/{id}", reader, quiet, surfaces.ad.Get()},
		{"GET", "/ad/r/{origin}/{id}/record", reader, quiet, surfaces.ad.Record},
		{"GET", "/ad/r/{origin}/{id}/proof", reader, quiet, surfaces.ad.Proof},
		{"GET", "/ad/r/{origin}/{id}/history", reader, quiet, surfaces.ad.History},
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

		// Nodes of this domain and of its peers; the handler authorises them.
		{"GET", "/federation/v1/checkpoint", node, quiet, federation},
		{"GET", "/federation/v1/heads", node, quiet, federation},
		{"GET", "/federation/v1/keys", node, quiet, federation},
		{"GET", "/federation/v1/pages", node, quiet, federation},
		{"POST", "/federation/v1/records", node, quiet, federation},
		{"POST", "/federation/v1/farewell", node, notable, federation},
		{"POST", "/federation/v1/evidence", node, notable, federation},
		{"GET", "/federation/v1/evidence", node, quiet, federation},

		// It changes nothing, so it needs no operator's proof.
		{"POST", "/v1/operator/policy/preview", operatorOf("policy.write").taking(operator.MaxPolicyBody), quiet,
			surfaces.policy.Preview},
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

	return routes
}

// operatorRoutes are the routes of operators.
func (s *Server) operatorRoutes() []route {
	surfaces := &s.surfaces

	return []route{
		{"GET", "/v1/operator/status", operatorOf("raft.read"), quiet, surfaces.status.Node},
		{"GET", "/v1/operator/raft", operatorOf("raft.read"), quiet, surfaces.status.Raft},
		{"GET", "/v1/operator/members", operatorOf("members.read"), quiet, surfaces.status.Members},
		{"GET", "/v1/operator/peers", operatorOf("peer.read"), quiet, surfaces.status.Peers},
		{"GET", "/v1/operator/peers/evidence", operatorOf("peer.read"), quiet, surfaces.status.Evidence},
		{"POST", "/v1/operator/peers", operatorOf("peer.write"), notable, surfaces.peerings.Put},
		{"POST", "/v1/operator/peers/invite", operatorOf("peer.write"), notable, surfaces.peerings.Invite},
		{"POST", "/v1/operator/peers/accept", operatorOf("peer.write"), notable, surfaces.peerings.Accept},
		{"POST", "/v1/operator/peers/change", operatorOf("peer.write"), notable, surfaces.peerings.Change},
		{"GET", "/bundles", operatorOf("bundle.read"), quiet, surfaces.bundles.List},
		{"GET", "/v1/operator/keys", operatorOf("keys.read"), quiet, surfaces.keys.List},
		{"POST", "/v1/operator/keys/rotate", operatorOf("keys.write"), notable, surfaces.keys.Rotate},
		{"POST", "/v1/operator/keys/revoke", operatorOf("keys.write"), notable, surfaces.keys.Revoke},
		{"POST", "/v1/operator/history/erase", operatorOf("history.erase"), notable, surfaces.history.Erase},
		{"GET", "/v1/operator/policy", operatorOf("policy.read"), quiet, surfaces.policy.Get},
		{"PUT", "/v1/operator/policy", operatorOf("policy.write").taking(operator.MaxPolicyBody), notable,
			surfaces.policy.Set},
		{"GET", wire.OwnedPath, operatorOf("registration.read"), quiet, surfaces.registrations.List},
		{"POST", wire.OwnedPath + "/end", operatorOf("registration.write"), notable, surfaces.registrations.Remove},
		{"GET", "/v1/operator/flagged", operatorOf("flagged.read"), quiet, surfaces.registrations.ListFlagged},
		{"GET", "/v1/operator/debug/pprof/{name}", operatorOf("debug.read"), notable, operator.Profile},
		{"GET", wire.AuditPath, operatorOf("audit.read"), quiet, surfaces.audit.Read},
		{"POST", "/v1/operator/raft/transfer", operatorOf("raft.write"), notable, surfaces.cluster.Transfer},
		{"POST", "/v1/operator/raft/remove", operatorOf("raft.write"), notable, surfaces.cluster.Remove},
		{"POST", "/v1/operator/raft/admit", operatorOf("raft.write"), notable, surfaces.cluster.Admit},
		{"POST", "/v1/operator/raft/leave", operatorOf("raft.write"), notable, surfaces.cluster.Leave},
		{"POST", "/v1/operator/raft/clock", operatorOf("raft.write"), notable, surfaces.cluster.ConfirmClock},
		{"GET", "/v1/operator/snapshot", operatorOf("snapshot.read"), notable, surfaces.backups.Save},
		{"POST", "/v1/operator/snapshot", operatorOf("snapshot.write").taking(admission.Streamed), notable,
			surfaces.backups.Restore},
	}
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
