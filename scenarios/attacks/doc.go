// Package attacks holds the attacks of docs/threats.md that were found to work once,
// as tests against the real binary (design: threats.md, "How it is tested"). Each names
// what the attacker has and what must happen instead.
package attacks
