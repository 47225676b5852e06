// Package connect finds out which directory a command talks to, and as whom, from flags, the
// environment and saved contexts, and makes the client.
//
// A flag wins over the environment, and the environment over the context. A context that
// --context names replaces the environment as a whole, so that a connection never mixes
// addresses, certificates and tokens of different directories.
package connect
