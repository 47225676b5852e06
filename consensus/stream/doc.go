// Package stream is the connection over which a member sends its writes to the leader: both
// ends of it (ADR 0021).
//
// A message is a frame, answered by a frame, in any order. A server that stops answers all
// frames that it has read, and says in a goodbye frame which was the last, so that the sender
// knows which messages have to go elsewhere.
package stream
