package node

import (
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
)

// A peering that is pending and that nobody can make active any more, or that waits for
// this side, says so.
func TestPendingPeeringsSayWhatTheyWaitFor(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, x := range map[string]struct {
		until int64
		why   string
	}{
		"invited":          {1001, ""},
		"invited too late": {1000, "ended before it was accepted"},
		"accepted in vain": {0, "accept the token again"},
	} {
		until, why := awaited(directory.Peering{State: directory.PeeringPending, Until: x.until}, now)
		if x.why == "" && why != "" || !strings.Contains(why, x.why) || until.IsZero() != (x.until == 0) {
			t.Errorf("%s: until %s, %q; want %q", name, until, why, x.why)
		}
	}
}

// What another domain says of an invitation is no bytes that a terminal would take for its
// own.
func TestWhatAnInvitationIsAnsweredIsFitToBeRead(t *testing.T) {
	if got := theirs(&apiclient.Error{Reply: apiclient.Reply{Status: 403},
		Problem: apiclient.Problem{Detail: "\x1b[2Jgone"}}).Error(); got != `it answers 403, "\x1b[2Jgone"` {
		t.Errorf("it says %s", got)
	}
}

// The invited side refuses an invitation from its end on.
func TestAnEndedInvitationIsRefused(t *testing.T) {
	end := time.Unix(1_780_000_000, 0)

	for now, ended := range map[time.Time]bool{
		end.Add(-time.Nanosecond): false, end: true, end.Add(time.Hour): true,
	} {
		err := checkEnd(&apioperator.Token{Until: end.Unix()}, now)
		if (err != nil) != ended || ended && directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("at %s: %v", now, err)
		}
	}
}
