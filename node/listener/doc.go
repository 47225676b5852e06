// Package listener bounds the clients' use of a node's listeners: the number of
// connections, their age and the time of each step of a request.
//
//   - limit.go caps connections per class of clients, so that a few addresses cannot
//     starve the known ones; queue.go has the oldest connection of a class make room
//   - handshakes.go bounds the handshakes that use a processor at a time
//   - idle.go bounds the connections without a request, of strangers and of other domains
//   - expiry.go ends a connection with the certificate that its client presented
//   - addresses.go tells at which addresses a node listens
//   - server.go makes HTTP servers with timeouts
package listener
