// Package federation exchanges registrations with other domains. A node serves its own
// domain's streams of signed pages, follows the streams of its peers, and fills the View
// from which lookups are answered.
//
//	mesh, err := federation.Open(federation.Config{…}) // fills the View from disk
//	mux.Handle("/federation/v1/", mesh.Handler(caller))
//	go mesh.Run(ctx) // subscriptions, repair, gossip; returns when ctx ends
//	defer mesh.Close()
//
// docs/spec/federation.md specifies the protocol. Its rules have letters and numbers (G3,
// T4, P3), which comments here refer to. docs/adr explains decisions.
//
// # Packages
//
//	protocol   messages between nodes: codes, JWS, queries, bodies, the client
//	publish    pages, heads and records of the own domain
//	store      pages and records of other domains on disk
//	replica    one other domain as this node holds it: streams, index, key documents
//	mirror     copies of other domains' ledgers
//	evidence   evidence files on disk
//	gossip     memberlist on authenticated TLS streams
//
// Package node runs two further ones beside a Mesh:
//
//	peering    agreements with peers, and their trust bundles
//	witness    cosigns other domains' ledgers, and has the own domain's cosigned
//
// # The way of a page
//
// A page arrives by subscription (subscribe.go), pull (pull.go) or gossip (gossip.go). All
// three bring it to the receiver, which calls one function for each step, in this order:
//
//  1. receiver.check: the gate checks size, header, JSON, origin, key and signature, one
//     code each (rule G6). verifyWithKeys has a page by an unknown key checked again after
//     the origin's key document was pulled.
//  2. replica.Origin.Examine: the rest of the gate, by what is known of the origin: signer,
//     format, quota, epoch and time. A page that contradicts a stored page of the same
//     registration and revision convicts its origin (rule E1).
//  3. receiver.prefetch: the records that the page names and that are missing are fetched
//     from the node that sent the page, or for a gossiped page from the origin's contact, for
//     two seconds at most. Their bytes must have the hashes (h, m).
//  4. replica.Gate.Open: each record is parsed and compared with its digest.
//  5. replica.Origin.AcceptPage: one transaction (store.ApplyPage) writes the entries, the
//     records, the page and the watermark; then the index changes (rule G3).
//
// receiver.take does all of them for one page. While a stream is pulled, follower.pullOn runs
// steps 1 to 3, step 4 and step 5 of consecutive pages at the same time, so that both ends
// are busy. A record that doesn't come in time doesn't delay its page: the entry is stored
// without it and is neither shown nor relayed, and follower.backlog asks siblings, the
// origin and other peers, less often each time.
//
// # Goroutines
//
//	Run ─┬─ manage            starts and stops the loops of each active peering:
//	     │    ├─ watch        logs the peer's state, and asks all nodes of a silent one
//	     │    ├─ follow       one subscription for each stream; other nodes if it fails
//	     │    ├─ tend         heads, gossiped messages, missing records, renewed chains
//	     │    ├─ catchUp      pulls the pages that heads announce
//	     │    ├─ confirms     compares announcements of one node with those of the others
//	     │    ├─ crossChecks  compares with other nodes' copies of the streams
//	     │    └─ followLedger copies the ledger, and compares it with other nodes' copies
//	     ├─ sweeper           removes expired entries
//	     ├─ Wiping            overwrites deleted records on disk
//	     ├─ staleness         hides the entries of silent origins
//	     ├─ judges            applies changed import policies
//	     ├─ memory            hides the largest peers' records while memory is short
//	     ├─ SignAhead         signs records before they are requested
//	     ├─ enforce           freezes convicted origins and sends evidence to other nodes
//	     └─ gossipOut         gossips pages and heads of the own domain
//
// Run waits for all of them. Requests run on the server's goroutines; a long poll ends with
// news, its wait, its caller, or Run. While a request to another node is under way, a loop may
// hold the turn to pull a stream, to pull a key document or to follow a ledger, for which only
// loops with the same work wait. No lock that readers take is held meanwhile.
package federation
