// Package transport is the cluster's port: one listener over which the members of a domain
// talk, within mutual TLS.
//
// ALPN distinguishes four protocols: Raft, write streams, HTTP/2 for other messages, and
// HTTP/1.1 for nodes that ask to become members. The peer must be a member, except for the
// last; when we dial, it must be the member of that address. A connection ends with the peer's
// certificate, and when the peer is no longer a member. The cluster knows every connection and
// closes it, because Raft's transport leaves goroutines behind at those that it has accepted.
//
// RaftTransport works around a bug of the library: its replication pipeline can block for
// ever when a member refuses entries (hashicorp/raft issue 612). It takes answers off the
// pipeline whether or not the library reads them. It also keeps two members that stand for
// election at the same time from splitting the votes (candidacy).
package transport
