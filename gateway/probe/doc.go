// Package probe compares a registration with its agent's description of itself.
//
//	source, ok := probe.SourceOf(owner, document, projection)
//	description, err := probe.Fetch(ctx, guard, source, etag)
//	differences, err := description.Compare(agent, document, projection, true)
//	verdict := probe.Judge(differences, err)
//
// A [Source] is an A2A card, a Web of Agents document or an MCP server. It is found
// from the base of the registration, and fetched through the gateway's guard.
//
// A [Prober] does so for all registrations of a domain, at intervals, while its node leads
// the domain. Its [Findings] are copied by the other members.
//
// # Files
//
//	probe                  the source of an agent's description, and fetching it
//	compare                the differences from the registration, and the verdict
//	prober                 rounds of due probes, and the renewal of verified registrations
//	findings               the results, kept in memory and copied between members
package probe
