// Package probe compares a registration with what its agent says of itself.
//
//	source, ok := probe.SourceOf(owner, document, projection)
//	description, err := probe.Fetch(ctx, guard, source, etag)
//	differences, err := description.Compare(agent, document, projection, true)
//	verdict := probe.Judge(differences, err)
//
// A [Source] is an A2A card, a Web of Agents document or an MCP server. It is found
// from the base of the registration, and fetched through the gateway's guard.
//
// When to probe, and where verdicts are kept, is decided by the caller.
//
// # Files
//
//	probe                  the source of an agent's description, and fetching it
//	compare                the differences from the registration, and the verdict
package probe
