// Package gossip spreads small messages among the nodes of peered domains and
// knows which of them are there. No other package of a node uses memberlist.
//
//	g, err := gossip.Start(&gossip.Config{…}, mesh) // mesh takes what arrives
//	g.Publish("head", message, audience)            // to the members of the audience, once to each
//	g.Members()                                     // the pool, a hint and nothing more
//	err = g.Close()                                 // leaves the pool, closes every connection
//
// memberlist trusts every holder of its key and believes what it reads. Three
// things therefore stand between it and the network:
//
//   - Its transport is mutually authenticated TLS. A member's name is the SPIFFE ID
//     that its connection proved.
//   - The packet filter refuses whatever an honest member does not send, and takes
//     messages out before memberlist sees them.
//   - Messages go out by a queue of our own, which asks for each recipient whether
//     it is in the message's audience.
//
// The package opens no page, head or key document: the federation above it judges
// every message, and a connection proves no more than who sent it.
//
// # Files
//
//	gossip                     configuration, start and end, the search for seeds and lost members
//	delegate                   the pool: who is a member, and what memberlist asks and tells
//	broadcast                  messages on their way to their audience
//	inbox                      messages and heads that arrived, by sender
//	packetfilter               what memberlist may see of foreign bytes
//	transport, handshake       connections: accepted, dialled, proved, bounded
//	link, exchange             packets between two nodes; one push/pull and the heads after it
//	probes                     pings that memberlist still waits for at shutdown
//	gossiptest                 a network in memory and certificate authorities, for tests
package gossip
