// Package crawl reads Web of Agents documents: the lists of agents that origins
// publish (draft-gaikwad-woa, 4).
//
//	at, err := crawl.ParseOrigin("agents.example.com")
//	result, err := crawl.Fetch(ctx, guard, at, last)
//	for _, agent := range result.Agents { … }
//
// [Fetch] follows the pages of a document through the gateway's guard, within bounds,
// and asks only for changes if it has the previous [Result]. [Split] makes one document
// of each agent; an agent that is malformed has an error of its own and does not
// exclude the others.
//
// A [Follower] keeps the registrations of a directory equal to the list of one origin.
//
// # Files
//
//	crawl                  an origin's pages, and how long they are fresh
//	woa                    one document, split into its agents
//	follower               registering, refreshing and removing by the list
package crawl
