// Package connect makes the client of a command. The directory to talk to and the identity
// come from flags, the environment and saved contexts.
//
// A flag wins over the environment, and the environment over the context. A context that
// --context names replaces the environment as a whole, so that a connection never mixes
// addresses, certificates and tokens of different directories. The bearer token of a context goes only to
// the addresses of that context, also if a flag or the environment has another address.
package connect
