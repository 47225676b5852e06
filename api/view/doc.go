// Package view shows a registration of any kind in the shape of each draft
// (docs/spec, views): the Agent Directory's (ad.go), AIDIP's (aidip.go, resolved.go), the
// discovery profile's (profile.go) and the Web of Agents' (woa.go). A shape knows no other
// surface's; all of them end with the same provenance (provenance.go).
//
// Registrations and items are most of a server's work, so their JSON is appended by
// hand. Tests hold it against the types of package wire, member by member, and against
// the goldens of the specification.
package view
