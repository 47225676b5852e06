// Package kinds validates a document of each kind and makes its projection ([Project],
// [Reproject]). The kinds are documents of the four drafts (ad, profile, aidip, woa), A2A agent
// cards, MCP registry servers and OASF records, one file each.
//
// A new kind is a constant in package directory, a file here, and an entry in the table
// of kinds.go.
package kinds
