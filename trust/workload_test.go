package trust

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An address of another form than the specification's two is refused.
func TestAddressesOfAWorkloadAPI(t *testing.T) {
	for text, want := range map[string]string{
		"unix:///run/spire/api.sock": "", "tcp://127.0.0.1:8081": "", "tcp://[::1]:80": "",
		"": "scheme", "/run/api.sock": "scheme", "http://127.0.0.1:80": "scheme",
		"unix:api.sock":       "opaque",
		"unix://run/api.sock": "three slashes",
		"unix:///a?b":         "query", "unix:///a#b": "fragment", "unix://u@h/a": "user",
		"unix://":            "path",
		"tcp://localhost:80": "IP", "tcp://127.0.0.1": "port", "tcp://127.0.0.1:80/": "path",
		"tcp:127.0.0.1:80": "opaque", "unix://\x00": "not a valid URI",
	} {
		err := CheckWorkloadAPI(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A watch that the library gave up is begun again: at once or nearly so after a canceled one,
// and later after an answer that an upgrade of the endpoint alone changes.
func TestAWatchThatTheLibraryGaveUpIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ends := []codes.Code{codes.Unimplemented, codes.Canceled, codes.InvalidArgument, codes.Canceled}
		start := time.Now()

		var began []time.Duration
		rewatch(ctx, func() error {
			began = append(began, time.Since(start))
			if len(began) == len(ends) {
				cancel()
			}

			return status.Error(ends[len(began)-1], "x")
		})

		want := []time.Duration{0, 30 * time.Second, 31 * time.Second, 61 * time.Second}
		if !slices.Equal(began, want) || time.Since(start) != want[3] {
			t.Errorf("the watch began at %v and ended at %v, want %v", began, time.Since(start), want)
		}
	})
}
