package directory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: AD-010
func TestParseLifetime(t *testing.T) {
	for in, want := range map[string]uint32{"": 86400, "60": 60, "86400": 86400, "4294967295": 4294967295} {
		if n, err := directory.ParseLifetime(in, directory.DefaultLifetime); n != want || err != nil {
			t.Errorf("%q: got %d, %v", in, n, err)
		}
	}

	for _, in := range []string{"59", "0", "-60", "4294967296", "99999999999999999999", "1e3", "60.0", "0x60", "60s",
		" 60", "+60", "٦٠"} {
		_, err := directory.ParseLifetime(in, directory.DefaultLifetime)
		wantRefusal(t, err, directory.BadLifetime, "")
	}
}

func TestDeadlines(t *testing.T) {
	if got := directory.Deadline(noon*1000+999, 60); got != noon+60 {
		t.Errorf("the deadline is %d, not the floor of the second", got)
	}

	for lifetime, want := range map[uint32]int64{60: 15, 61: 15, 86400: 21600} {
		if got := directory.AnnounceBefore(lifetime); got != want {
			t.Errorf("a lifetime of %d is announced %d s before, not %d", lifetime, got, want)
		}
	}
}

// A reader's time is the wall clock, but never behind the origin's word carried
// on (rule T4).
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c directory.Clock

		start := time.Now()
		if !c.Now().Equal(start) {
			t.Errorf("a new clock says %v", c.Now())
		}

		c.Advance(start.Add(-time.Hour)) // an old word changes nothing …

		if !c.Now().Equal(start) {
			t.Errorf("after an old word it says %v", c.Now())
		}

		c.Advance(start.Add(10 * time.Minute)) // … and our own clock is ten minutes slow
		time.Sleep(time.Minute)

		if want := start.Add(11 * time.Minute); !c.Now().Equal(want) {
			t.Errorf("a minute after the word it says %v, want %v", c.Now(), want)
		}

		c.Advance(start.Add(5 * time.Minute)) // a replay takes nothing back

		if want := start.Add(11 * time.Minute); !c.Now().Equal(want) {
			t.Errorf("after a replay it says %v, want %v", c.Now(), want)
		}
	})
}
