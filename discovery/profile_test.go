package discovery_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/discovery/content"
)

// Requirement: XU-010, XU-034, XU-049, XU-053
func TestBadRequestsAreRefusedWhereTheyAreWrong(t *testing.T) {
	long := strings.Repeat("word ", discovery.MaxQuery/5+1)

	many := strings.TrimSuffix(strings.Repeat(`"t",`, discovery.MaxFilterValues+1), ",")
	for body, pointer := range map[string]string{
		`[]`:                                   "",
		`{}`:                                   "/query",
		`{"query":"  "}`:                       "/query",
		`{"query":7}`:                          "/query",
		fmt.Sprintf(`{"query":%q}`, long):      "/query",
		`{"query":"a","required_tags":"maps"}`: "/required_tags",
		`{"query":"a","required_tags":["maps",1]}`:                   "/required_tags",
		`{"query":"a","excluded_tags":[""]}`:                         "/excluded_tags",
		`{"query":"a","preferred_tags":["_"]}`:                       "/preferred_tags",
		`{"query":"a","protocols":[` + many + `]}`:                   "/protocols",
		`{"query":"a","limit":0}`:                                    "/limit",
		`{"query":"a","limit":1.5}`:                                  "/limit",
		`{"query":"a","limit":"5"}`:                                  "/limit",
		`{"query":"a","include_evidence":"yes"}`:                     "/include_evidence",
		`{"query":"a","strict":null}`:                                "/strict",
		`{"query":"a","detail":"everything"}`:                        "/detail",
		`{"query":"a","client_context":[]}`:                          "/client_context",
		`{"query":"a","constraints":[]}`:                             "/constraints",
		`{"query":"a","constraints":{"max_results_age_seconds":-1}}`: "/constraints/max_results_age_seconds",
		`{"query":"a","constraints":{"min_verification":"local"}}`:   "/constraints/min_verification",
		`{"query":"a","constraints":{"region":5}}`:                   "/constraints/region",
		`{"query":"a","query":"b"}`:                                  "",
	} {
		_, err := discovery.ParseRequest([]byte(body))

		var refused *directory.Error
		switch {
		case !errors.As(err, &refused) || refused.Problem != directory.BadRequest &&
			refused.Problem != directory.BadDocument:
			t.Errorf("%.60s: %v", body, err)
		case pointer != "" && refused.Pointer != pointer:
			t.Errorf("%.60s: refused at %q, want %q", body, refused.Pointer, pointer)
		}
	}
}

// Requirement: XU-010, XU-044, XU-051, XU-053, XU-054
func TestARequestSaysWhatIsAsked(t *testing.T) {
	got,
		err := discovery.ParseRequest([]byte(`{"query":" plan a route ","required_tags":["Route Planning"],"preferred_tags":["maps"],"excluded_tags":["beta"],
		"protocols":["a2a"],"limit":500,"include_evidence":true,"detail":"full","strict":true,"expand":true,"x-unknown":{"query":1},
		"client_context":{"locale":"de","user":"nobody"},
		"constraints":{"max_results_age_seconds":60,"region":"eu","origins":["beta.test"],"min_verification":"logged","latency":1,"cost":2}}`))
	must(t, err)

	want := &discovery.Request{
		Query: " plan a route ", RequiredTags: []string{"Route Planning"}, PreferredTags: []string{"maps"},
		ExcludedTags: []string{"beta"},
		Protocols:    []string{"a2a"}, Limit: discovery.MaxLimit, IncludeEvidence: true, Detail: discovery.DetailFull,
		Strict: true, Expand: true, Locale: "de",
		Constraints: discovery.Constraints{MaxAge: 60, Regions: []string{"eu"}, Origins: []string{"beta.test"},
			MinVerification: discovery.Logged, Unsupported: []string{"cost", "latency"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}

	least, err := discovery.ParseRequest([]byte(`{"query":"a"}`))
	if want := (&discovery.Request{Query: "a", Limit: discovery.DefaultLimit, Detail: discovery.DetailSummary,
		Constraints: discovery.Constraints{MaxAge: -1}}); err != nil || !reflect.DeepEqual(least, want) {
		t.Errorf("read %+v, %v; want %+v", least, err, want)
	}
}

// Requirement: XU-040
func TestTagsAreComparedInOneForm(t *testing.T) {
	for tag, want := range map[string]string{
		"maps": "maps", "Route_Planning": "route-planning", "route  planning": "route-planning",
		" ROUTE-planning ": "route-planning",
		"Stra\u00dfe":      "strasse", "cafe\u0301": "caf\u00e9", "_": "", "": "",
	} {
		if got := content.NormalTag(tag); got != want {
			t.Errorf("%q is compared as %q, want %q", tag, got, want)
		}
	}
}
