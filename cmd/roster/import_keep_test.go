package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A shelf is a directory in virtual time that accepts all registrations, and answers
// lists of refreshes with the results that a test sets.
type shelf struct {
	started time.Time
	mu      sync.Mutex
	posts   []string              // names that were registered
	lists   map[time.Duration]int // length of each list, by when it came
	judge   func(id string, at time.Duration) (status int)
	away    func(at time.Duration) bool
}

func (s *shelf) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	at, w := time.Since(s.started), httptest.NewRecorder()
	switch {
	case r.URL.Path == "/ad/r":
		s.posts = append(s.posts, r.URL.Query().Get("agent"))
		w.Header().Set("Location", fmt.Sprintf("/ad/r/%d", len(s.posts)))
		w.WriteHeader(http.StatusCreated)
	case s.away(at):
		problem(503, "unavailable", "no leader")(w, r)
	default:
		var asked []apiclient.Renewal
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}

		s.lists[at] = len(asked)

		told := []map[string]any{}
		for _, one := range asked {
			answer := map[string]any{"id": one.ID, "status": 204, "lt": 100}
			if status := s.judge(one.ID, at); status != 204 {
				answer = map[string]any{"id": one.ID, "status": status, "problem": "some", "detail": "for a reason"}
			}

			told = append(told, answer)
		}

		if err := json.NewEncoder(w).Encode(told); err != nil {
			return nil, err
		}
	}

	return w.Result(), nil
}

// import --keep refreshes all registrations in one list: it registers expired ones again,
// gives up one that belongs to another owner, and retries while the directory is
// unreachable.
//
// Requirement: OPS-007
func TestImportKeepRefreshesItsRegistrations(t *testing.T) {
	dir := t.TempDir()
	for _, n := range strings.Fields("a b c") {
		must(t, os.WriteFile(filepath.Join(dir, n+".json"), []byte(card(n, "https://"+n+".example")), 0o600))
	}

	synctest.Test(t, func(t *testing.T) {
		taken := ""
		s := &shelf{started: time.Now(), lists: map[time.Duration]int{},
			away: func(at time.Duration) bool { return at > 300*time.Second && at < 400*time.Second },
		}
		expired := false
		s.judge = func(id string, at time.Duration) int {
			switch {
			case at > 200*time.Second && !expired:
				expired = true
				return 404
			case at > 500*time.Second && (taken == "" || taken == id):
				taken = id
				return 403
			}

			return 204
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()

		var out, errs bytes.Buffer
		code := dialing(&out, &errs, "https://shelf", s).
			run(ctx, []string{"import", "a2a", dir, "--keep", "--lt", "100"})
		notes := errs.String()

		if code != 0 || len(s.lists) < 50 || len(s.posts) != 4 {
			t.Errorf("exit code %d, %d lists, registered %v", code, len(s.lists), s.posts)
		}

		for at, n := range s.lists {
			if want := 3; at < 500*time.Second && n != want {
				t.Errorf("a list of %d after %s, want %d", n, at, want)
			} else if at > 600*time.Second && n != 2 {
				t.Errorf("a list of %d after %s, when one is lost", n, at)
			}
		}

		for _, want := range []string{"had expired; registered again", "cannot refresh", "stopped refreshing ",
			": for a reason"} {
			if !strings.Contains(notes, want) {
				t.Errorf("it doesn't say %q: %s", want, notes)
			}
		}
	})
}
