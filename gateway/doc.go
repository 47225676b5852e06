// Package gateway is everything by which a node talks to agents: to invoke them,
// and to read what they say of themselves. All of it goes through one Guard,
// because where it goes is what a registrant wrote:
//
//	guard := gateway.NewGuard(gateway.GuardConfig{Judge: …, Certificate: …})
//	defer guard.Close()
//	page, err := guard.Fetch(ctx, request, gateway.Target{})
//
// The Guard judges the address that a connection is made to after the name was
// resolved, so that a name that is resolved anew to another address gains
// nothing, and who answers there (draft-gaikwad-woa, 8.2; draft-xu, 4.6).
//
// [Embeddings], a client of a source of vectors, is beside it: where that goes is
// what the operator wrote.
//
// Package gateway/crawl reads Web of Agents documents through the guard, and
// gateway/probe what agents say of themselves.
//
// # Files
//
//	dial, address, certificate, fetch, refusal
//	                    the guard
//	invoke, plan, batch, rate_limit, idempotency, lifecycle
//	                    an invocation by any protocol
//	rest, a2a*, mcp*    by protocol; mcp_describe for package probe
//	post, token, pass_header, answer
//	                    the request to the agent, and the reading of its answer
//	embeddings          vectors
package gateway
