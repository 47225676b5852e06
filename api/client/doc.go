// Package client is the Go client of a Roster directory. It is for agents that
// register themselves, for programs that find agents, and for operators' tools:
//
//	c, err := client.New(client.Config{Addresses: []string{"https://ad.alpha.example:8400"}})
//	found, err := c.Lookup(ctx, client.LookupOptions{CapName: []string{"summarize"}})
//
// A program that imports it links the standard library, go-spiffe's spiffeid and a
// JSON library, and nothing of the server.
//
// # Who the caller is
//
// Anonymous callers see what is public. LoadTLS shows an X.509-SVID from PEM files;
// ShowWorkload and ShowBearer show tokens instead. Any *tls.Config works, also that
// of go-spiffe's tlsconfig package with a source of the Workload API.
//
// # Failures
//
// A refusal is an *Error, with the members of its problem body. errors.Is tells
// its kind: ErrNotFound, ErrConflict, ErrForbidden and the others. An error of the
// connection is ErrUnavailable if nothing can have changed, and ErrOutcomeUnknown
// if a change may have been made. A certificate that one side refuses is neither, since
// another attempt would end alike.
//
// # Several addresses, and repetition
//
// A client knows the addresses of several nodes of one domain, and learns those of
// the others with Config.Learn. A request that fails goes to the next of them, and so
// does the one after an answer by which a node closes its connection. A request is sent
// again only if that is safe:
//
//   - Reads, lookups and discovery: after each failure that may pass.
//   - Register, Refresh, Update, RefreshMany, and Invoke with an idempotency key:
//     likewise, because two such requests have the effect of one.
//   - All others, and requests with a condition: if no connection was made, or the
//     directory answered that nothing was changed.
//
// Between two rounds the client waits, twice as long each time and at least as
// long as Retry-After says, by chance a little more or less. It gives up after
// Config.Attempts, or when its context has less time left than the wait. So writes wait
// through an election.
//
// A removal is not repeated, because the second one would be refused for the success of
// the first.
//
// # Lifetimes
//
// Lifetimes are durations here and seconds on the wire. They are rounded up, so that no
// registration ends before its owner expects it to.
package client
