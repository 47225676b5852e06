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
//   - Its transport is HTTP over mutually authenticated TLS: packets and streams are requests.
//     A member's name is the SPIFFE ID that its connection proved, and each request is judged by
//     the certificate and the peerings of the moment.
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
//	gossip        configuration, start and end, the search for seeds and lost members
//	delegate      the pool: members, and the callbacks of memberlist
//	broadcast     messages on their way to their audience
//	packetfilter  the checks of all input to memberlist
//	transport     requests between nodes: sent, authenticated, bounded, answered
//	contact       the nodes that were met, the packets that wait for each, and the pace of reading
//	gossiptest    a network in memory and certificate authorities, for tests
package gossip
