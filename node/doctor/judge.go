package doctor

import (
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/node/metrics"
)

// Thresholds of the findings. "roster status" asks the functions below, and has none of its own.
const (
	svidSoon      = 10 * time.Minute // before an SVID ends
	authoritySoon = 30 * 24 * time.Hour
	spaceLeast    = 1 << 30          // bytes
	spaceSoon     = 10               // percent
	lagBound      = 10 * time.Second // a living agent is dropped nowhere while the lag is under 15 s (rule X2)
	witnessSoon   = time.Minute      // after a witness began to fail
)

// JudgeSVID returns the status of an SVID by the time until it ends.
func JudgeSVID(left time.Duration) string { return judgeTime(left, svidSoon) }

// JudgeAuthority returns the status of a bundle by the time until its last CA certificate ends.
func JudgeAuthority(left time.Duration) string { return judgeTime(left, authoritySoon) }

func judgeTime(left, soon time.Duration) string {
	switch {
	case left <= 0:
		return StatusFailed
	case left < soon:
		return StatusWarning
	default:
		return StatusOK
	}
}

// JudgeSpace returns the status of the disk that has the data, by its free bytes and the percentage
// that they are of it.
func JudgeSpace(free uint64, percent int) string {
	switch {
	case free < spaceLeast:
		return StatusFailed
	case percent < spaceSoon:
		return StatusWarning
	default:
		return StatusOK
	}
}

// JudgeQuota returns the status of a quota by its use.
func JudgeQuota(use metrics.QuotaUse) string {
	switch share := use.Share(); {
	case share >= 1:
		return StatusFailed
	case share >= metrics.QuotaWarning:
		return StatusWarning
	default:
		return StatusOK
	}
}

// JudgeClock returns the status of a clock, its unconfirmed step, and by how much it is behind the domain's
// committed time, from the seconds of both.
func JudgeClock(stepSeconds, behindSeconds float64) (status string, step, behind time.Duration) {
	step = time.Duration(stepSeconds * float64(time.Second)).Round(time.Second)
	behind = time.Duration(behindSeconds * float64(time.Second)).Round(time.Second)

	if step != 0 || behind != 0 {
		return StatusWarning, step, behind
	}

	return StatusOK, 0, 0
}

// judgeOffset returns the status of another machine's clock, and by how much it is ahead of this one within
// a slack, from the Date of an answer to a question that began then and took that long.
func judgeOffset(date, began time.Time, took time.Duration) (status string, off, slack time.Duration) {
	// A Date is cut to the second, and the answer was on its way.
	off = date.Add(time.Second / 2).Sub(began.Add(took / 2))
	slack = (time.Second + took) / 2

	if off.Abs() > clockBound+slack {
		return StatusFailed, off, slack
	}

	return StatusOK, off, slack
}

// JudgeWitness returns the status of a witness of the ledger. One that fails for a moment is asked again.
func JudgeWitness(w *wire.WitnessStatus, now time.Time) string {
	if w.Error == "" || now.Sub(w.FailingSince) < witnessSoon {
		return StatusOK
	}

	return StatusWarning
}

// JudgePeer returns the status of a peering by its state and its lag. Each new change leaves a peer behind
// for a moment, which needs no attention.
func JudgePeer(p *wire.Peer) string {
	switch p.State {
	case "active":
		return StatusOK
	case "behind":
		if p.LagSeconds <= lagBound.Seconds() && p.Missing == 0 {
			return StatusOK
		}

		return StatusWarning
	case "pending", "unsupported", "connecting", "not_exported":
		return StatusWarning
	default:
		return StatusFailed
	}
}
