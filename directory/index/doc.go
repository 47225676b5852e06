// Package index holds registrations in memory, answers lookups from them, and reports
// how the answers change. It does no I/O.
//
// A node answers from a [View]: its own domain's [Index] and one for each other
// origin. [ParseQuery] reads a lookup. [View.Lookup] answers it in an order that is the
// same on every member, and shows only registrations that are alive by their origin's
// clock ([directory.Clock]). [View.Watch] reports how such an answer changes:
//
//	w := view.Watch(query, viewer, token)   // token: a [ResumeToken], or zero to start over
//	events, err := w.Next(ctx)              // added, updated, removed
//
// # Files
//
//	index, load, entries      one origin's registrations
//	postings, sortedrows, mask
//	                          the filters' texts, and the entries that have each
//	lookalikes                names that look like another one
//	find                      the cheapest way to the entries that match a query
//	expiry                    the next deadline, while the view is watched
//	view, cursor              all origins in one order; pages of it
//	query, parse_query, requirements
//	                          a lookup's filters
//	watch, initial, changelog
//	                          changes of an answer
//
// # To add a filter
//
//  1. [Query] and its matcher (query), [ParseQuery] (parse_query), and find if the filter
//     has postings of its own
//  2. LookupParams and the watch's parameters in api/ad (read.go, watch.go), the template
//     in api/catalog (woa.go), and api/openapi.yaml
//  3. LookupOptions in api/client (agents.go), and addFilterFlags in cmd/roster/agents
//     (lookup.go)
package index
