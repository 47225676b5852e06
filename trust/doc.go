// Package trust answers who somebody is, what they may do, and who says so
// (design: trust.md).
//
// A node shows itself by an X.509-SVID, which a [Source] holds and swaps, and
// judges others by the [Bundles] of their trust domains; [ServerTLS],
// [NodeServerTLS] and [ClientTLS] put both on a connection:
//
//	source, err := trust.OpenFiles("node.pem", "node-key.pem")
//	bundles := trust.NewBundles()
//	err = bundles.Set(td, jwks)
//	listener := tls.NewListener(raw, trust.ServerTLS(source, bundles, count))
//
// An SVID lives an hour and a record for days, so each node has an Ed25519
// [Key] of its own which its SVIDs attest. A [Keyring] signs with it, and
// verifies what other domains signed by the newest key document of each. All
// that is signed is a compact JWS, whose payload is kept as it was received.
//
// [Verify] checks a record or a proof file offline, and [Policy] decides what
// an identity may do.
package trust
