// Package message has the messages between members of a domain, besides Raft's own.
//
// They grow by members: a reader ignores members that it does not know, and a sender relies on
// one only from the wire version on that has it (federation.md, "Formats over time"). A message
// is encoded again before it goes into the log, so an unknown member never gets there.
package message
