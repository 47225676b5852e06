package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A source makes tokens that are good for a minute, unless it is down or its context has ended.
type source struct {
	asked int
	down  bool
}

func (s *source) JWTSVID(ctx context.Context, _ string) (string, time.Time, error) {
	s.asked++

	if s.down {
		return "", time.Time{}, errors.New("down")
	}

	return "token", time.Now().Add(time.Minute), ctx.Err()
}

// A caller that disconnects takes the token from no other caller; and a token that is still
// good is sent while the source fails.
//
// Requirement: AI-017
func TestATokenOutlivesCallersAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &source{}

		var kept tokens
		kept.init(from)

		gone, leave := context.WithCancel(t.Context())
		leave()

		for _, step := range []struct {
			name  string
			ctx   context.Context
			after time.Duration
			down  bool
			want  string
			asked int
		}{
			{"a caller that has gone", gone, 0, false, "token", 1},
			{"the next caller", t.Context(), 0, false, "token", 1},
			{"shortly before the end, while the source is down", t.Context(), 45 * time.Second, true, "token", 2},
			{"again at once", t.Context(), 0, true, "token", 2},
			{"after its end", t.Context(), 15 * time.Second, true, "", 3},
			{"again at once after its end", t.Context(), 0, false, "", 3},
			{"after the source is back", t.Context(), tokenAgain, false, "token", 4},
			{"just before the end, while the source is down", t.Context(), 55 * time.Second, true, "token", 5},
			{"at its end, before the source is asked as usual", t.Context(), 5 * time.Second, true, "", 6},
		} {
			time.Sleep(step.after)

			from.down = step.down

			if got := kept.of(step.ctx, "https://agent.test/"); got != step.want || from.asked != step.asked {
				t.Errorf("%s: %q after %d requests to the source, want %q after %d", step.name, got, from.asked,
					step.want, step.asked)
			}
		}

		for n := range maxTokens + 2 {
			kept.of(t.Context(), fmt.Sprintf("https://agent-%d.test/", n))
		}

		if len(kept.all) != maxTokens {
			t.Errorf("%d tokens are kept", len(kept.all))
		}

		if got := kept.of(t.Context(), "https://[::1"); got != "" {
			t.Errorf("what is no URL is shown %q", got)
		}
	})
}
