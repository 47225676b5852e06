// Package trust authenticates callers, nodes and domains, and verifies their signatures
// (design: trust.md).
//
// A node authenticates by an X.509-SVID, which a [Source] holds and swaps. It verifies
// others by the [Bundles] of their trust domains. [ServerTLS], [NodeServerTLS] and
// [ClientTLS] apply both to a connection:
//
//	source, err := trust.OpenFiles("node.pem", "node-key.pem")
//	bundles := trust.NewBundles()
//	err = bundles.Set(td, jwks)
//	listener := tls.NewListener(raw, trust.ServerTLS(source, bundles, count))
//
// An SVID lives an hour and a record for days, so each node has an Ed25519 [Key] of its
// own which its SVIDs attest. A [Keyring] signs with it, and verifies the signatures of
// other domains by the newest key document of each. Every signed structure is a compact
// JWS, whose payload is kept as it was received.
//
// [Verify] checks a record or a proof file offline by an [Anchor] that the verifier
// chooses.
//
// # Files
//
//	identity, workload, workload_wit, reload, watch, file
//	                       the node's own SVID, and its source
//	bundles, fetch, publish, document
//	                       the authorities of trust domains
//	chain, chain_verifier, tls
//	                       the verification of certificates, and TLS configurations
//	keys, keyset, keyring, attest
//	                       the keys that sign for domains
//	verify, anchor, inclusion, proof, report, evidence
//	                       offline verification
//	ca                     a development CA
//
// # Packages
//
//	card         signed A2A agent cards
//	compact      JWS in compact serialization
//	credentials  the caller of a request, by certificate or token
//	workload     a client of the SPIFFE Workload API
//	policy       the permissions of an identity, in Cedar
//	audit        the log of changes and refusals
package trust
