// Package attacks holds attacks of the actors in docs/threats.md that once worked, as tests
// against the real binary. Each states what the attacker has and the required outcome.
package attacks
