// Package discovery is the surface of draft-xu-efficient-agent-discovery-profile-00 under
// /discovery, at level D2: metadata of agents are published, and ranked queries answered.
// Package discovery at the top of the module is the ranking itself; it is imported here
// as ranking.
package discovery
