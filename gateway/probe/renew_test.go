package probe

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A ledger notes which registrations are refreshed.
type ledger struct{ renewed []directory.RID }

func (l *ledger) RefreshMany(_ context.Context, batch directory.RefreshBatch) (directory.Outcome, error) {
	for _, item := range batch.Items {
		l.renewed = append(l.renewed, item.RID)
	}

	return directory.Outcome{}, nil
}

// A round refreshes a registration only by what it found itself. A finding of an earlier
// round, of an agent that was verified then and that this round did not reach, renews
// nothing; neither does one of other contents, nor one in the first quarter of the lifetime.
//
// Requirement: AD-044
func TestOldFindingsRenewNothing(t *testing.T) {
	now := time.Now()
	found := func(age time.Duration, state directory.ProbeState) directory.Probe {
		return directory.Probe{State: state, At: now.Add(-age).UnixMilli()}
	}
	findings, registry := NewFindings(), &ledger{}
	due := &task{}

	var want []directory.RID

	for n, tc := range []struct {
		finding   directory.Probe
		statement uint64
		left      time.Duration
		renews    bool
	}{
		{found(time.Second, directory.ProbeVerified), 1, 20 * time.Minute, true},
		{found(roundTimeout+time.Second, directory.ProbeVerified), 1, 20 * time.Minute, false},
		{found(time.Hour, directory.ProbeVerified), 1, 20 * time.Minute, false},
		{found(time.Second, directory.ProbeMismatch), 1, 20 * time.Minute, false},
		{found(time.Second, directory.ProbeUnreachable), 1, 20 * time.Minute, false},
		{found(time.Second, directory.ProbeVerified), 2, 20 * time.Minute, false},
		{found(time.Second, directory.ProbeVerified), 1, 50 * time.Minute, false},
	} {
		entry := &directory.Entry{RID: rid(n), Statement: 1, Lifetime: 3600, ExpiresAt: now.Add(tc.left).UnixMilli()}
		findings.put(entry.RID, pack(tc.finding, tc.statement))
		due.entries = append(due.entries, entry)

		if tc.renews {
			want = append(want, entry.RID)
		}
	}

	prober := NewProber(ProberConfig{Findings: findings, Logger: slog.New(slog.DiscardHandler),
		Renew: &Renewer{Registry: registry, Caller: func() directory.Caller { return directory.Caller{} }}})
	prober.renew(t.Context(), map[string][]*task{"host": {due}})

	if !slices.Equal(registry.renewed, want) {
		t.Errorf("renewed %v, want %v", registry.renewed, want)
	}
}
