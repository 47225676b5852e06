package cli

import (
	"testing"
	"time"
)

// A lifetime is a number of seconds, or a duration.
func TestLifetimesAreSecondsOrDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "24h": 24 * time.Hour,
		"soon": 0, "-5m": 0, "1500ms": 0, "0": 0, "30": 0, "30s": 0, "1d": 0, "": 0,
	} {
		var lifetime Lifetime

		err := lifetime.Set(text)
		if lifetime.Duration() != want || (err != nil) != (want == 0) {
			t.Errorf("--lt %q is %s, %v; want %s", text, lifetime.Duration(), err, want)
		}
	}

	var wait time.Duration

	seconds := Seconds{Value: &wait, Zero: -1}
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "1m": time.Minute, "0s": -1, "0": -1} {
		if err := seconds.Set(text); err != nil || wait != want {
			t.Errorf("%q is %s, %v; want %s", text, wait, err, want)
		}
	}

	if err := seconds.Set("1.5"); err == nil {
		t.Error("a fraction is accepted")
	}
}
