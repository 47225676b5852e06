package doctor

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/metrics"
)

// Each threshold divides what needs attention from what doesn't.
func TestThresholdsAreJudgedOnce(t *testing.T) {
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
	} {
		if c.got != c.want {
			t.Errorf("%s is judged %s, want %s", name, c.got, c.want)
		}
	}
}
