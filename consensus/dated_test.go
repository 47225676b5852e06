package consensus

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// profile is a registering of draft-xu's minimal metadata, with further members.
func profile(t testing.TB, who directory.Identity, members string) directory.RegisterRequest {
	t.Helper()
	body := `{"id":"minimal","name":"Minimal Agent","description":"Answers.","bindings":` +
		`[{"protocol":"https","endpoint":"https://a.test"}]` + members + `}`

	d, err := directory.ParseDocument(directory.KindProfile, []byte(body))
	must(t, err)

	return directory.RegisterRequest{Caller: directory.Caller{Identity: who}, Agent: "minimal", Document: d,
		Lifetime: 600}
}

// Requirement: XU-008, XU-023, XU-061
func TestStaleMetadataReplacesNothing(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		write := func(members string) error {
			t.Helper()
			_, err := s.Register(t.Context(), profile(t, ada, members))

			return err
		}

		dated := func(day int, version string) string {
			return fmt.Sprintf(`,"updated_at":"1999-05-%02dT00:00:00Z","version":%q`, day, version)
		}
		for _, step := range []struct {
			what, members string
			want          directory.Problem
		}{
			{"the first", dated(8, "1.0.0"), ""},
			{"the same again", dated(8, "1.0.0"), ""},
			{"the same time, another document", dated(8, "0.9.0"), ""},
			{"older, of a higher version", dated(7, "2.0.0"), directory.StaleMetadata},
			{"newer, of a lower version", dated(9, "0.1.0"), ""},
			{"no time, a lower version", `,"version":"0.0.9"`, directory.StaleMetadata},
			{"no time, no SemVer", `,"version":"0.1"`, ""},
			{"no time, before no SemVer", `,"version":"0.0.1"`, ""},
			{"no time, a higher version", `,"version":"0.0.10"`, ""},
			{"a time again, a lower version", dated(1, "0.0.9"), directory.StaleMetadata},
			{"no version", ``, ""},
			{"a time", dated(1, "0.0.1"), ""},
			{"from the future", `,"updated_at":"` + time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339) + `"`,
				directory.BadDocument},
			{"expired", `,"expires_at":"1999-05-01T00:00:00Z"`, directory.StaleMetadata},
		} {
			if err := write(step.members); step.want == "" && err != nil {
				t.Errorf("%s: %v", step.what, err)
			} else if step.want != "" {
				problem(t, err, step.want)
			}
		}

		_, err := s.Register(t.Context(), profile(t, bob, dated(1, "0.0.1")))
		problem(t, err, directory.NameTaken)
	})
}

// Whoever writes at once, the newest metadata stays.
//
// Requirement: XU-023
func TestTheNewestOfManyStays(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		const writers = 24

		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				_, err := s.Register(t.Context(),
					profile(t, ada, fmt.Sprintf(`,"updated_at":"1999-05-01T00:00:%02dZ"`, i)))
				if p := directory.ProblemOf(err); err != nil && p != directory.StaleMetadata &&
					p != directory.Unavailable {
					t.Errorf("writer %d: %v", i, err)
				}

				for i == writers-1 && directory.ProblemOf(err) == directory.Unavailable {
					_, err = s.Register(t.Context(),
						profile(t, ada, fmt.Sprintf(`,"updated_at":"1999-05-01T00:00:%02dZ"`, i)))
				}
			})
		}

		all.Wait()

		found := s.cfg.Index.Named("minimal")
		if len(found) != 1 || kinds.DatesOf(found[0].Document).Updated.Second() != writers-1 {
			t.Errorf("what stays is %v", found)
		}
	})
}

// A document's own end bounds its lease, by registration, by replacement and by
// refresh.
//
// Requirement: XU-047
func TestADocumentsEndCapsItsLease(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		end := time.Now().Add(100 * time.Second).Truncate(time.Second)
		members := `,"expires_at":"` + end.UTC().Format(time.RFC3339) + `"`

		first, err := s.Register(t.Context(), profile(t, ada, members))
		if err != nil || first.Granted > 100 {
			t.Fatalf("got %+v, %v", first, err)
		}

		refreshed, err := s.Refresh(t.Context(),
			directory.RefreshRequest{Caller: directory.Caller{Identity: ada}, RID: first.RID, Lifetime: 600})
		if err != nil || refreshed.Granted > 100 {
			t.Errorf("a refresh gave %+v, %v", refreshed, err)
		}

		many, err := s.RefreshMany(t.Context(), directory.RefreshBatch{Caller: directory.Caller{Identity: ada},
			Items: []directory.Renewal{{RID: first.RID, Lifetime: 600}}})
		if err != nil || len(many.Each) != 1 || many.Each[0].Granted > 100 {
			t.Errorf("a refresh among many gave %+v, %v", many, err)
		}

		if e, ok := s.cfg.Index.Get(first.RID); !ok || e.ExpiresAt > end.UnixMilli() {
			t.Errorf("it ends at %v, and its document at %v", e, end)
		}

		if out, err := s.Register(t.Context(), profile(t, ada, "")); err != nil || out.Granted != 600 {
			t.Errorf("without an end it is granted %+v, %v", out, err)
		}

		if out, err := s.Refresh(t.Context(), directory.RefreshRequest{Caller: directory.Caller{Identity: ada},
			RID: first.RID, Lifetime: 600}); err != nil || out.Granted != 600 {
			t.Errorf("a refresh is granted %+v, %v", out, err)
		}
	})
}
