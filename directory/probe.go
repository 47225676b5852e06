package directory

import "slices"

// A Probe is what came of asking an agent, at its base, what it says of itself
// (AD-044). It is the directory's own finding: no registrant writes it, no peer is
// told, and it changes nothing of the registration.
type Probe struct {
	State   ProbeState
	Members []string // in which it differs, for ProbeMismatch
	Reason  string   // why nothing was had, for ProbeUnreachable: a word
	At      int64    // Unix milliseconds
}

// Equal reports whether p and q say the same.
func (p Probe) Equal(q Probe) bool {
	return p.State == q.State && p.Reason == q.Reason && p.At == q.At && slices.Equal(p.Members, q.Members)
}

// A ProbeState is what a Probe found.
type ProbeState string

// The states of a Probe.
const (
	ProbeVerified    ProbeState = "verified"    // the agent says the same
	ProbeMismatch    ProbeState = "mismatch"    // it says something else
	ProbeUnreachable ProbeState = "unreachable" // nothing that it says was to be had
)
