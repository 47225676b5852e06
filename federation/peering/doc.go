// Package peering makes, changes and ends the agreements of a domain with its peers.
//
// An agreement is replicated state: consensus has it, and any node may change it by a
// comparison with the present one (Agreements). Each node follows the agreements: it puts
// the bundles of peers in force, keeps the agreements on disk for its next start, and sends
// a farewell to a former peer (files.go, farewell.go). A BundleKeeper keeps the bundles
// equal to those of the peers' endpoints.
//
// An invitation is a secret that makes its bearer a peer once. The domain that invites keeps
// the secret's hash; the other one presents the secret (Accept). Tokens, verbs and routes are
// those of the operator's API, which node maps to this package.
package peering
