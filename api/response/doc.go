// Package response writes the answers of package api's surfaces: bodies with their
// entity tags, caching headers and compression, and the JSON that they are made of.
//
// Compression is in Write and not a layer around the handlers, such as gzhttp, because
// HEAD and 304 have no body to wrap and must describe the compressed form, and because a
// strong entity tag must be of the compressed form. Streams, and the bodies that nodes
// exchange, are not written by Write.
package response
