// Package operator is the surface of a domain's operators under /v1/operator, and the
// redemption of invitations under /v1/peerings. It has a handler for each subject: the
// node's state (Status), peerings, signing keys, policy, the registrations of an identity,
// the domain's Raft members (Cluster), and backups.
package operator
