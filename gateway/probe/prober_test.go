package probe

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A registration is renewed only by a finding of this round: an old one says nothing about
// the agent of today.
//
// Requirement: AD-044
func TestAnOldFindingRenewsNothing(t *testing.T) {
	now := time.Unix(1_780_000_000, 0)
	entry := &directory.Entry{RID: rid(1), Statement: 7, Lifetime: 600, ExpiresAt: now.Add(time.Minute).UnixMilli()}

	for age, want := range map[time.Duration]bool{
		0: true, roundTimeout - time.Millisecond: true, roundTimeout: false, time.Hour: false,
	} {
		p := &Prober{cfg: ProberConfig{Findings: NewFindings()}}
		p.cfg.Findings.put(entry.RID,
			pack(directory.Probe{State: directory.ProbeVerified, At: now.Add(-age).UnixMilli()}, entry.Statement))

		if p.isRenewable(entry, now) != want {
			t.Errorf("a finding of %s ago renews: %t, want %t", age, !want, want)
		}
	}
}
