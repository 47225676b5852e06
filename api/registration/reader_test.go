package registration

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
)

// A caller finds by its name or rid what policy shows it, and is told of no other. The owner, and the identity to which
// it is offered while it may accept, see all of it.
//
// Requirement: AD-002, AD-035, TRUST-008
func TestARegistrationIsFoundByThoseWhoMaySeeIt(t *testing.T) {
	own, secret := entry(t, directorytest.Alpha, 1, "own"), entry(t, directorytest.Alpha, 2, "secret")
	foreign, unknown := entry(t, directorytest.Beta, 3, "foreign"), entry(t, directorytest.Gamma, 4, "far")
	n := newNode(own, secret, foreign, unknown)

	for _, x := range []struct {
		who   directory.Identity
		name  Name
		shown string // "", "part" or "whole"
		index bool   // the position of the origin's history is told
	}{
		{directorytest.Ada, Name{ID: "own"}, "whole", false},
		{directorytest.Bob, Name{ID: "own"}, "part", false},
		{directory.Identity{}, Name{ID: own.RID.String()}, "part", false},
		{directorytest.Bob, Name{ID: "secret"}, "", false},
		{directorytest.Bob, Name{ID: secret.RID.String()}, "", false},
		{directorytest.Bob, Name{Origin: "alpha.test", ID: secret.RID.String()}, "", false},
		{directorytest.Ada, Name{Origin: "alpha.test", ID: secret.RID.String()}, "whole", false},
		{directorytest.Ada, Name{Origin: "ALPHA.test", ID: secret.RID.String()}, "", false},
		{directorytest.Ada, Name{Origin: "spiffe://alpha.test", ID: secret.RID.String()}, "", false},
		{directorytest.Ada, Name{Origin: "alpha.test", ID: "own"}, "", false},
		{directorytest.Ada, Name{Origin: "alpha.test", ID: foreign.RID.String()}, "", false},
		{directorytest.Ada, Name{Origin: "beta.test", ID: foreign.RID.String()}, "part", true},
		{directorytest.Ada, Name{ID: "foreign"}, "part", true},
		{directorytest.Ada, Name{Origin: "gamma.test", ID: unknown.RID.String()}, "part", false},
		{directorytest.Ada, Name{ID: "nobody"}, "", false},
	} {
		w := httptest.NewRecorder()
		err := n.Reader.Show(n.Reader.Render.AD())(w, callBy(x.who, x.name, ""))

		shown := ""
		if err == nil {
			shown = map[bool]string{true: "whole", false: "part"}[strings.Contains(w.Body.String(), `"vendor"`)]
		} else {
			directorytest.WantProblem(t, err, directory.NotFound)
		}

		if shown != x.shown || (w.Header().Get("Roster-Index") != "") != x.index {
			t.Errorf("%s reads %+v: %q, %v, %v", x.who, x.name, w.Body, err, w.Header())
		}
	}

	n.offer = directory.Offer{RID: own.RID, To: directorytest.Bob}
	for who, whole := range map[directory.Identity]bool{directorytest.Bob: true, eve: false, {}: false} {
		found, err := n.Reader.Find(httptest.NewRecorder(), callBy(who, Name{ID: "own"}, ""), n.Reader.Render.Href)
		if err != nil || found.Redaction.ShowsAll() != whole {
			t.Errorf("%s sees an offer as %+v, %v", who, found.Redaction, err)
		}
	}

	// An offer that can't be accepted shows nothing, and neither does another domain's of the same rid.
	n.offer.Changed = true
	copied := entry(t, directorytest.Beta, 5, "copied")
	n.put(copied)

	for _, name := range []string{"own", "copied"} {
		if name == "copied" {
			n.offer = directory.Offer{RID: copied.RID, To: directorytest.Bob}
		}

		call := callBy(directorytest.Bob, Name{ID: name}, "")

		found, err := n.Reader.Find(httptest.NewRecorder(), call, n.Reader.Render.Href)
		if err != nil || found.Redaction.ShowsAll() {
			t.Errorf("bob sees all of %s: %v", name, err)
		}
	}
}

// An answer says until when a registration is shown, and to those with an identity who else may see it. Its path here
// is named if the request has another.
//
// Requirement: AD-053
func TestAnAnswerSaysWhatItShows(t *testing.T) {
	own := entry(t, directorytest.Alpha, 1, "own")
	own.ExpiresAt = 3600_000_000_000
	n := newNode(own, entry(t, directorytest.Beta, 2, "foreign"))

	for _, x := range []struct {
		who                  directory.Identity
		id, location, access string
	}{
		{directorytest.Ada, "own", "/ad/r/" + own.RID.String(), "domain"},
		{directorytest.Ada, own.RID.String(), "", "domain"},
		{directorytest.Bob, "own", "/ad/r/" + own.RID.String(), ""}, // the owner is withheld
		{directory.Identity{}, own.RID.String(), "", ""},
		{directorytest.Ada, "foreign", "/ad/r/beta.test/" + directorytest.RID(2).String(), ""},
	} {
		w := httptest.NewRecorder()
		if err := n.Reader.Show(n.Reader.Render.AD())(w, callBy(x.who, Name{ID: x.id}, "")); err != nil {
			t.Fatal(err)
		}

		got := w.Header()
		if got.Get("Content-Location") != x.location || got.Get(wire.HeaderVisibility) != x.access ||
			got.Get("ETag") == "" || x.id != "foreign" && got.Get("Sunset") != "Sat, 29 Jan 2084 16:00:00 GMT" {
			t.Errorf("%s reads %s: %v", x.who, x.id, got)
		}
	}
}

// A name that several domains have is answered with links to each that the caller sees.
func TestANameOfSeveralDomainsLeadsToEach(t *testing.T) {
	n := newNode(entry(t, directorytest.Gamma, 1, "twin"), entry(t, directorytest.Beta, 2, "twin"),
		entry(t, directorytest.Alpha, 3, "secret"), entry(t, directorytest.Beta, 4, "secret"))

	w := httptest.NewRecorder()
	_, err := n.Reader.Find(w, callBy(directorytest.Bob, Name{ID: "twin"}, ""), n.Reader.Render.Href)

	if !errors.Is(err, request.ErrAnswered) || w.Code != http.StatusMultipleChoices ||
		len(w.Header().Values("Link")) != 2 || strings.Count(w.Body.String(), `"href"`) != 2 ||
		strings.Contains(w.Body.String(), "registrant") {
		t.Errorf("%v, %d %v %s", err, w.Code, w.Header(), w.Body)
	}

	// Of two that are hidden from all but their owner, she finds her own.
	found, err := n.Reader.Find(httptest.NewRecorder(), callBy(directorytest.Ada, Name{ID: "secret"}, ""),
		n.Reader.Render.Href)
	if err != nil || found.Entry.Origin != directorytest.Alpha {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A lookup is paid for by what it looks at, and ends when its caller has used its quota up.
//
// Requirement: AD-067
func TestALookupIsPaidFor(t *testing.T) {
	n := newNode()
	for i := range 2500 {
		e := entry(t, directorytest.Alpha, 0, "secret")
		e.RID = directory.NewRID(1, [10]byte{byte(i), byte(i >> 8)})
		n.put(e)
	}

	for requests, spent := range map[int]bool{1: false, 2: true} { // of three that may be made at once
		n.Reader.Limiter = admission.NewLimiter(admission.Limits{admission.Reads: .3}, nil)
		call := callBy(directorytest.Bob, Name{}, "")

		for range requests {
			directorytest.Must(t, n.Reader.Limiter.Pace(http.Header{}, call.Caller(), admission.Reads))
		}

		page, err := n.Reader.Lookup(call, admission.Reads, index.Query{Count: 10}, n.Reader.Guard.Viewer(call))
		if len(page.Entries) != 0 || (directory.ProblemOf(err) == directory.RateLimited) != spent {
			t.Errorf("after %d requests: %d entries, %v", requests, len(page.Entries), err)
		}
	}
}
