package doctor

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/node/metrics"
)

// Each threshold divides what needs attention from what doesn't.
func TestThresholdsAreJudgedOnce(t *testing.T) {
	now := time.Now()
	witness := func(since time.Time, failed string) string {
		return JudgeWitness(&wire.WitnessStatus{Name: "beta.test", FailingSince: since, Error: failed}, now)
	}
	clock := func(step, behind float64) string {
		status, _, _ := JudgeClock(step, behind)
		return status
	}

	other := func(off time.Duration) string {
		status, _, _ := judgeOffset(now.Add(off-time.Second/2), now, 0)
		return status
	}

	for name, c := range map[string]struct{ got, want string }{
		"an SVID that ended":            {JudgeSVID(0), StatusFailed},
		"an SVID about to end":          {JudgeSVID(10*time.Minute - 1), StatusWarning},
		"an SVID in force":              {JudgeSVID(10 * time.Minute), StatusOK},
		"a CA that ended":               {JudgeAuthority(-1), StatusFailed},
		"a CA about to end":             {JudgeAuthority(30*24*time.Hour - 1), StatusWarning},
		"a CA in force":                 {JudgeAuthority(30 * 24 * time.Hour), StatusOK},
		"less than a GiB":               {JudgeSpace(1<<30-1, 50), StatusFailed},
		"less than a tenth of the disk": {JudgeSpace(1<<30, 9), StatusWarning},
		"room":                          {JudgeSpace(1<<30, 10), StatusOK},
		"a quota used up":               {JudgeQuota(metrics.QuotaUse{Used: 10, Limit: 10}), StatusFailed},
		"a quota nearly used up":        {JudgeQuota(metrics.QuotaUse{Used: 9, Limit: 10}), StatusWarning},
		"a quota with room":             {JudgeQuota(metrics.QuotaUse{Used: 8, Limit: 10}), StatusOK},
		"no quota":                      {JudgeQuota(metrics.QuotaUse{Used: 8}), StatusOK},
		"a clock that stepped back":     {clock(-.5, 0), StatusWarning},
		"a clock that is behind":        {clock(0, .5), StatusWarning},
		"a clock that drifts":           {clock(.4, .4), StatusOK},
		"another clock behind by 3 s":   {other(-3 * time.Second), StatusFailed},
		"another clock ahead by 3 s":    {other(3 * time.Second), StatusFailed},
		"another clock within 2.5 s":    {other(-2500 * time.Millisecond), StatusOK},
		"a witness that cosigns":        {witness(time.Time{}, ""), StatusOK},
		"a witness that began to fail":  {witness(now.Add(-time.Minute+1), "refused"), StatusOK},
		"a witness that fails":          {witness(now.Add(-time.Minute), "refused"), StatusWarning},
	} {
		if c.got != c.want {
			t.Errorf("%s is judged %s, want %s", name, c.got, c.want)
		}
	}
}
