// Package admission decides how much of a node a caller may use: how many requests in
// a time (Limiter), how many requests are worked on at once (Overload), how many may
// wait for something (Shares), and how much memory the answers hold that clients have
// not read yet (AnswerMemory).
//
// # Rates
//
// Each caller has a token bucket for each class of routes. Operators and nodes of the
// domain usually have no limit, because they must get through. A caller is the verified
// identity wherever it connects from; without one, it is the address (a /64 of IPv6).
// Headers of proxies are not believed.
//
// A request is counted before anything else is decided about it, so that 401, 404 and
// 409 cost as much as success: names cannot be tried out at will.
//
// RateLimit and RateLimit-Policy are those of draft-ietf-httpapi-ratelimit-headers-10.
// Their window w is how long an empty bucket takes to fill; t is the time until the
// whole quota is available again, or until one request is, if nothing remains.
//
// How many registrations an identity or the domain may have is decided in the log, not
// here, because two requests at two nodes could both be the last.
//
// # Overload
//
// Under overload a node sheds ranked queries first, then lookups, then registrations
// and removals, and refreshes last: a query can be repeated, but a registration that
// isn't refreshed ends. A request that is shed gets 503 overloaded with Retry-After.
// Requests of operators and nodes, and documents that anyone may read, are never shed.
//
// A request takes one of a few slots (limit.Priority). If none is free it waits for at
// most a second, and a slot goes to the highest class that waits. So priority costs
// nothing while a node keeps up.
//
// A slot is for the time in which a node works, not for the time in which it waits. It
// is taken once the body has been read and the state is as fresh as the read asks for.
// It is released when the answer begins, before the leader or another domain is asked,
// and while an embedding service answers. Neither a slow client nor a leader whose disk
// hangs holds one. Without slots, requests that need only the processor would wait in
// the scheduler's queue, where no bound on concurrent requests could see them.
package admission
