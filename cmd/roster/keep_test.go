package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A desk is a directory in virtual time with a handler of the test. Its journal records the
// requests and their times.
type desk struct {
	started time.Time
	answer  func(r *http.Request, at time.Duration) (status int, name string)

	mu      sync.Mutex // guards journal
	journal []entry
}

type entry struct {
	at   time.Duration
	what string
}

// RoundTrip answers without a network, because virtual time stops during real I/O.
func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	at := time.Since(d.started)
	d.mu.Lock()
	d.journal = append(d.journal, entry{at, r.Method + " " + r.URL.Path})
	d.mu.Unlock()
	status, name := d.answer(r, at)

	w := httptest.NewRecorder()
	switch {
	case status >= 300 && name == "": // of a proxy
		w.WriteHeader(status)
	case status >= 300:
		problem(status, name, name)(w, r)
	case status == http.StatusOK:
		w.WriteHeader(status)
		_, _ = w.WriteString(name)
	case r.URL.Path == "/ad/r":
		w.Header().Set("Location", "/ad/r/"+name)
		w.WriteHeader(status)
	default:
		w.WriteHeader(status)
	}

	return w.Result(), nil
}

// keepFor runs register --keep at the desk for a time and returns its exit code and notes.
func keepFor(t *testing.T, d *desk, args []string, long time.Duration) (int, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.json")
	must(t, os.WriteFile(file, []byte(`{"base":"https://weather.example"}`), 0o600))
	d.started = time.Now()
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()

	var out, errs bytes.Buffer
	code := dialing(&out, &errs, "https://desk", d).
		run(ctx, append([]string{"register", "weather", file, "--keep", "--lt", "100"}, args...))

	return code, errs.String()
}

func (d *desk) count(what string) int {
	n := 0
	for _, e := range d.journal {
		if strings.HasPrefix(e.what, what) {
			n++
		}
	}

	return n
}

// Each refresh follows the previous one after 0.4 to 0.6 of the lifetime, with jitter. The
// end of the command keeps the registration.
//
// Requirement: OPS-007
func TestKeepRefreshesWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: fine}

		code, notes := keepFor(t, d, nil, time.Hour)
		if code != 0 || d.count("POST /ad/r/") < 60 || d.count("DELETE") != 0 {
			t.Fatalf("exit code %d, %d refreshes, %d removals, notes %q", code, d.count("POST /ad/r/"),
				d.count("DELETE"), notes)
		}

		gaps := map[time.Duration]bool{}
		for i, e := range d.journal[1:] {
			gap := e.at - d.journal[i].at
			if gap < 40*time.Second || gap > 60*time.Second {
				t.Errorf("a refresh comes %s behind the one before", gap)
			}

			gaps[gap] = true
		}

		if len(gaps) < 10 {
			t.Errorf("only %d different pauses", len(gaps))
		}
	})
}

// With --staple a fresh staple lies in the file all the time, and failures are noted once.
//
// Requirement: LOG-025
func TestKeepWritesStaples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "staple.json")
		made := 0

		var (
			failed    []time.Duration
			recovered time.Duration
		)

		d := &desk{answer: func(r *http.Request, at time.Duration) (int, string) {
			if r.URL.Path != "/ad/r/"+rid+"/proof" {
				return fine(r, at)
			}

			if r.URL.RawQuery != "format=staple" {
				t.Errorf("asked for %s", r.URL)
			}

			if made++; made > 3 && at < 2*time.Hour {
				failed = append(failed, at)
				return http.StatusNotFound, "not-found"
			}

			if at >= 2*time.Hour && recovered == 0 {
				recovered = at
			}

			return http.StatusOK, fmt.Sprintf(`{"made":%d}`, made)
		}}

		code, notes := keepFor(t, d, []string{"--lt", "3600", "--staple", file}, 4*time.Hour)

		text, err := os.ReadFile(file)
		if code != 0 || err != nil || string(text) != fmt.Sprintf(`{"made":%d}`, made) {
			t.Errorf("exit code %d, %q, %v; made %d", code, text, err, made)
		}

		if strings.Count(notes, "cannot write the staple of weather") != 1 ||
			strings.Count(notes, "wrote the staple of weather") != 1 {
			t.Errorf("notes: %s", notes)
		}

		// A failure is followed by another try soon, and not at the next renewal.
		for i, at := range append(failed[1:], recovered) {
			if pause := at - failed[i]; pause > 30*time.Second {
				t.Errorf("a failure is followed by a try after %s", pause)
			}
		}

		last := time.Duration(0)
		for _, e := range d.journal {
			if !strings.HasSuffix(e.what, "/proof") {
				continue
			}

			if e.at-last > 10*time.Minute {
				t.Errorf("a staple is written %s behind the one before", e.at-last)
			}

			last = e.at
		}
	})
}

// Registrants that start at the same moment spread their refreshes: no second has more than
// three times the average, from the first refresh on.
//
// Requirement: XU-048
func TestRefreshesOfManyRegistrantsSpreadOut(t *testing.T) {
	const clients, lifetime, lifetimes = 100_000, 100, 5

	var seconds [lifetime * lifetimes]int

	all := 0
	for range clients {
		delay := func() time.Duration { return apiclient.RefreshDelay(lifetime * time.Second) }
		for at := delay(); at < lifetime*lifetimes*time.Second; at += delay() {
			seconds[int(at/time.Second)]++
			all++
		}
	}

	if most, mean := slices.Max(seconds[:]), all/len(seconds); most > 3*mean || mean < clients/lifetime {
		t.Errorf("%d refreshes in one second, %d on average", most, mean)
	}
}

func fine(r *http.Request, _ time.Duration) (int, string) {
	if r.URL.Path == "/ad/r" {
		return http.StatusCreated, rid
	}

	return http.StatusNoContent, ""
}

// After ten minutes without a leader, the expired registration is registered again, and
// refreshed under its new rid.
//
// Requirement: OPS-007
func TestKeepRegistersAgainAfterAnOutage(t *testing.T) {
	const again = "01JWNTC0000000000000000AD2"
	synctest.Test(t, func(t *testing.T) {
		lost := false
		d := &desk{}
		d.answer = func(r *http.Request, at time.Duration) (int, string) {
			switch {
			case at > 5*time.Minute && at < 15*time.Minute:
				lost = true
				return http.StatusServiceUnavailable, "unavailable"
			case lost && strings.HasSuffix(r.URL.Path, rid):
				return http.StatusNotFound, "registration-expired"
			case lost && r.URL.Path == "/ad/r":
				return http.StatusCreated, again
			}

			return fine(r, at)
		}

		code, notes := keepFor(t, d, nil, 20*time.Minute)
		if code != 0 || d.count("POST /ad/r/"+again) == 0 {
			t.Errorf("exit code %d, %d refreshes under the new id; notes:\n%s", code, d.count("POST /ad/r/"+again),
				notes)
		}

		for _, e := range d.journal {
			if e.what == "POST /ad/r" && e.at > 15*time.Minute+45*time.Second {
				t.Errorf("registered again only after %s", e.at)
			}
		}

		if n := strings.Count(notes, "\n"); n > 4 {
			t.Errorf("an absence is told once, not in %d lines:\n%s", n, notes)
		}
	})
}

// The error response of a proxy counts as an unreachable directory, neither as an absent
// registration nor as a refusal.
//
// Requirement: OPS-007
func TestKeepRetriesAfterErrorsOfAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		d.answer = func(r *http.Request, at time.Duration) (int, string) {
			if at > 5*time.Minute && at < 10*time.Minute {
				return []int{http.StatusNotFound, http.StatusForbidden,
					http.StatusBadGateway}[int(at/time.Minute)%3], ""
			}

			return fine(r, at)
		}

		code, notes := keepFor(t, d, nil, 20*time.Minute)
		if registered := d.count("POST /ad/r") - d.count("POST /ad/r/"); code != 0 || registered != 1 ||
			!strings.Contains(notes, "refreshed weather again") {
			t.Errorf("exit code %d, registered %d times; notes:\n%s", code, registered, notes)
		}
	})
}

// If a refresh grants less because the credential expires soon, the next refresh comes in
// time and asks for the whole lifetime again.
//
// Requirement: OPS-007, AD-070
func TestKeepFollowsTheGrantedLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends time.Duration // of the lifetime that was granted last

		var asked []string
		d := &desk{}

		d.answer = func(r *http.Request, at time.Duration) (int, string) {
			if r.URL.Path == "/ad/r" {
				ends = at + 1000*time.Second
				return http.StatusCreated, rid
			}

			if r.Method == http.MethodGet { // a look between two refreshes
				return http.StatusOK, "{}"
			}

			if at > ends {
				t.Errorf("refreshed at %s what had ended at %s", at, ends)
			}

			if asked = append(asked, r.URL.Query().Get("lt")); at < time.Hour {
				ends = at + 60*time.Second
				return http.StatusOK, `{"lt":60}`
			}

			ends = at + 1000*time.Second

			return http.StatusNoContent, ""
		}
		if code, notes := keepFor(t, d, []string{"--lt", "1000"}, 2*time.Hour); code != 0 || len(asked) < 60 {
			t.Fatalf("exit code %d, %d refreshes; notes %q", code, len(asked), notes)
		}

		if last := len(asked) - 1; asked[0] != "" || asked[1] != "1000" || asked[last] != "" {
			t.Errorf("asked for %q", asked)
		}
	})
}

// Requirement: OPS-007
func TestKeepEndsWithConflictWhenTheNameIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		d.answer = func(r *http.Request, at time.Duration) (int, string) {
			switch {
			case at < time.Minute:
				return fine(r, at)
			case r.URL.Path == "/ad/r":
				return http.StatusConflict, "agent-name-taken"
			}

			return http.StatusNotFound, "registration-expired"
		}

		code, notes := keepFor(t, d, nil, time.Hour)
		if code != 5 || !strings.Contains(notes, "another owner") {
			t.Errorf("exit code %d, notes %q", code, notes)
		}
	})
}

// Requirement: OPS-007
func TestKeepRemovesOnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: fine}
		code, notes := keepFor(t, d, []string{"--on-exit", "remove"}, 10*time.Minute)

		last := d.journal[len(d.journal)-1]
		if code != 0 || last.what != "DELETE /ad/r/"+rid || last.at > 10*time.Minute+2*time.Second {
			t.Errorf("exit code %d, at last %+v, notes %q", code, last, notes)
		}
	})
}

// A failure of the first registration ends the command, because most often the command line
// is wrong.
func TestKeepEndsIfTheFirstRegistrationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: func(*http.Request, time.Duration) (int, string) {
			return http.StatusServiceUnavailable, "unavailable"
		}}
		if code, _ := keepFor(t, d, nil, time.Hour); code != 6 || len(d.journal) != 1 {
			t.Errorf("exit code %d after %d requests", code, len(d.journal))
		}
	})
}

// A kept registration with a long lifetime is refreshed at once if a look shows that the domain was
// restored. If two looks can't find what may be refreshed, because policy hides it, looks end.
//
// Requirement: OPS-007
func TestKeepSeesARestore(t *testing.T) {
	for name, answer := range map[string]string{
		"restored": `{"href":"/ad/r/x","provenance":{"verification":{"unconfirmed":true}}}`, "hidden": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{}
			d.answer = func(r *http.Request, at time.Duration) (int, string) {
				switch {
				case r.Method != http.MethodGet:
					return fine(r, at)
				case answer == "":
					return http.StatusNotFound, "not-found"
				case d.count("POST /ad/r/") > 0 || at < 10*time.Minute:
					return http.StatusOK, "{}"
				}

				return http.StatusOK, answer
			}

			code, notes := keepFor(t, d, []string{"--lt", "86400"}, time.Hour)
			want := map[string]int{"restored": 1, "hidden": 2}[name]

			if refreshed := d.count("POST /ad/r/"); code != 0 || refreshed != want {
				t.Errorf("%s: exit code %d, refreshed %d times", name, code, refreshed)
			}

			if name == "restored" != strings.Contains(notes, "refreshed weather at once") {
				t.Errorf("%s: notes %q", name, notes)
			}

			if looks := d.count("GET"); looks < 8 == (name == "restored") || looks > 20 {
				t.Errorf("%s: %d looks", name, looks)
			}
		})
	}
}

// Each cause for which a refresh fails is noted, and no cause twice in a row.
//
// Requirement: FLD-020
func TestKeepNamesEachCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{started: time.Now()}
		d.answer = func(_ *http.Request, at time.Duration) (int, string) {
			switch {
			case at == 0:
				return http.StatusCreated, rid
			case at < time.Minute:
				return http.StatusServiceUnavailable, "unavailable"
			}

			return http.StatusUnauthorized, "unauthenticated"
		}

		var out, errs bytes.Buffer

		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Minute, stop)

		file := filepath.Join(t.TempDir(), "agent.json")
		must(t, os.WriteFile(file, []byte(`{"base":"https://a.example"}`), 0o600))
		dialing(&out, &errs, "https://desk", d).run(ctx, []string{"register", "a", file, "--keep", "--lt", "60"})

		if notes := errs.String(); strings.Count(notes, "cannot refresh a: unavailable") != 1 ||
			strings.Count(notes, "cannot refresh a: unauthenticated") != 1 {
			t.Errorf("got %s", notes)
		}
	})
}
