package directory

import "slices"

// A Probe is the result of comparing a registration with the agent's own metadata, fetched
// from its base (AD-044). It is this directory's finding: it is not sent to peers, and does
// not change the registration.
type Probe struct {
	State   ProbeState
	Members []string // that differ, for ProbeMismatch
	Reason  string   // one word, for ProbeUnreachable
	At      int64    // Unix milliseconds
}

// Equal reports whether p and q have the same result.
func (p Probe) Equal(q Probe) bool {
	return p.State == q.State && p.Reason == q.Reason && p.At == q.At && slices.Equal(p.Members, q.Members)
}

// A ProbeState is the result of a Probe.
type ProbeState string

// The states of a Probe.
const (
	ProbeVerified    ProbeState = "verified"    // the metadata is the same
	ProbeMismatch    ProbeState = "mismatch"    // the metadata differs
	ProbeUnreachable ProbeState = "unreachable" // its metadata could not be fetched
)
