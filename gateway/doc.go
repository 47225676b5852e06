// Package gateway is the part of a node that connects to agents: it invokes them, and
// reads their descriptions of themselves. All requests go through one Guard, because
// registrants chose the targets:
//
//	guard := gateway.NewGuard(gateway.GuardConfig{Judge: …, Certificate: …})
//	defer guard.Close()
//	page, err := guard.Fetch(ctx, request, gateway.Target{})
//
// The Guard checks the address of a connection after the name was resolved, so that a
// second resolution to another address gains nothing. It also checks the identity of the
// server (draft-gaikwad-woa, 8.2; draft-xu, 4.6).
//
// The guard presents the gateway's own identity, which no listener of a directory takes for
// a node, connects to no address at which a member of the own domain listens, and accepts
// no node as a server (docs/threats.md, rule S6).
//
// [Embeddings], a client of a source of vectors, doesn't use the guard, because the
// operator chose its target.
//
// Package gateway/crawl reads Web of Agents documents through the guard, and package
// gateway/probe reads the agents' descriptions of themselves.
//
// # Files
//
//	dial, certificate, fetch, refusal
//	                    the guard
//	invoke, plan, batch, rate_limit, idempotency, lifecycle
//	                    an invocation by any protocol
//	rest, a2a*, mcp*    by protocol; mcp_describe for package probe
//	post, token, pass_header, answer
//	                    the request to the agent, and the reading of its answer
//	embeddings          vectors
package gateway
