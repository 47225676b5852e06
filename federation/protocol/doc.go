// Package protocol holds the messages that nodes of different domains exchange, both
// ends of each: the codes by which a message is refused, compact JWS, the queries and
// bodies of the routes under /federation/v1, their compression, and a client.
//
// It verifies no signature: bytes that a node receives are foreign until the gate of
// package federation has passed them (rule G6).
package protocol
