// Package workload is a client of the SPIFFE Workload API: it fetches and follows the
// X.509-SVIDs, JWT-SVIDs, WIT-SVIDs and bundles of the calling process.
//
// The Workload API is a gRPC service of seven methods on a local socket. The client
// speaks gRPC's wire protocol with net/http (HTTP/2 in clear text) and decodes the six
// messages that it needs field by field. The gRPC library would do the same and a lot
// more: it is a fifth of the program, because its tracing uses templates, and with a
// template the linker keeps every exported method.
//
//   - address.go parses the address of the endpoint (SPIFFE Workload Endpoint, 4)
//   - call.go makes one gRPC call: framing, trailers and status
//   - message.go decodes the messages and parses them into go-spiffe's types
//   - client.go has the methods, and repeats a watch that ends
//
// The package keeps no state: the caller decides on the use of each update.
package workload
