// Package trust establishes who a caller, a node or a domain is, and verifies what
// they signed (design: trust.md).
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
// [Verify] checks a record or a proof file offline by an [Anchor] that the verifier
// chooses. What an identity may do is decided in trust/policy, and what it did is
// written by trust/audit.
//
// # Files
//
//	identity, workload*, reload, watch, file
//	                       the node's own SVID, and where it comes from
//	bundles, fetch, judge*, tls
//	                       whom it believes, and on a connection
//	callers, token, bearer, wimse, jwks, prove
//	                       who calls, by a certificate or a token
//	keys, keyset, keyring, attest, sign
//	                       what domains sign by
//	verify, anchor, inclusion, proof, report
//	                       offline verification
//	evidence               contradictions
//	card                   signed A2A cards
//	ca                     a throw-away authority
package trust
