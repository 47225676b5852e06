// Package gossip spreads small messages among the nodes of peered domains and
// tracks which of them are alive. No other package of a node uses memberlist.
//
//	g, err := gossip.Start(&gossip.Config{…}, mesh) // mesh receives messages
//	g.Publish("head", message, audience)            // to the members of the audience, once to each
//	g.Members()                                     // the pool, as a hint
//	err = g.Close()                                 // leaves the pool, closes every connection
//
// memberlist trusts every holder of its key and all input. Three parts therefore
// separate it from the network:
//
//   - Its transport is mutually authenticated TLS. A member's name is the SPIFFE ID
//     that its connection proved.
//   - The packet filter refuses all input that no honest member sends, and removes
//     messages before memberlist reads them.
//   - Messages are sent by a separate queue, which checks for each recipient whether
//     it is in the message's audience.
//
// The package opens no page, head or key document. Package federation verifies every
// message; a connection authenticates only its sender.
//
// # Files
//
//	gossip                     configuration, start and end, the search for seeds and lost members
//	delegate                   the pool: members, and the callbacks of memberlist
//	broadcast                  messages on their way to their audience
//	inbox                      received messages and heads, by sender
//	packetfilter               the checks of all input to memberlist
//	transport, handshake       connections: accepted, dialled, authenticated, bounded
//	link, exchange             packets between two nodes; one push/pull and the heads after it
//	probes                     pings for whose answers memberlist waits at shutdown
//	gossiptest                 a network in memory and certificate authorities, for tests
package gossip
