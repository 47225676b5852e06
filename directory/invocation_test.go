package directory_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// What a document says of its agent's pace lowers it, wherever it is said.
//
// Requirement: AI-040
func TestPaceIsTheLowestThatIsSaid(t *testing.T) {
	for members, want := range map[string]directory.Pace{
		`"name": "a"`: {},
		`"rate_limit": {"requests_per_second": 5, "requests_per_minute": 60}`:                            {PerSecond: 1},
		`"max_calls_per_minute": 30, "rate_limits": {"requests_per_second": 5}`:                          {PerSecond: 0.5},
		`"rate_limit": {"max_concurrent": 1}, "rate_limits": {"max_concurrent": 50}`:                     {Concurrent: 1},
		`"rate_limit": {"max_concurrent": 50}, "rate_limits": {"max_concurrent": 1}`:                     {Concurrent: 1},
		`"rate_limit": {"max_concurrent": -1, "requests_per_second": 0}, "max_calls_per_minute": "many"`: {},
	} {
		d, err := directory.ParseDocument(directory.KindAIDIP, []byte("{"+members+"}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := directory.PaceOf(d); got != want {
			t.Errorf("{%s} is %+v, want %+v", members, got, want)
		}
	}
}
