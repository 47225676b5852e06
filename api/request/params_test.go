package request

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// Parameters that a route doesn't know can't be wrong, and those that it knows are given once.
//
// Requirement: AD-030, AD-010
func TestParametersAreReadByTheirRoute(t *testing.T) {
	for query, want := range map[string]string{
		"owner=1&b=2":             `"1" <nil>`,
		"owner=1&b=%zz&%zz=1&=%&": `"1" <nil>`,
		"b=1":                     `"" <nil>`,
		"owner":                   `"" <nil>`,
		"%6fwner=1":               `"1" <nil>`,
		"owner=1&owner=1":         "bad-query",
		"owner=%zz":               "bad-query",
		"owner=%ff":               "bad-query",
	} {
		value, err := ParseParams(query).One("owner")

		got := fmt.Sprintf("%q %v", value, err)
		if err != nil {
			got = string(directory.ProblemOf(err))
		}

		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	for query, want := range map[string]uint32{"": 7, "lt=60": 60, "lt=": 0, "lt=60&lt=60": 0, "lt=%zz": 0, "lt=x": 0} {
		got, err := ParseParams(query).Lifetime(7)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("the lifetime of %q is %d, %v", query, got, err)
		}
	}

	if _, err := ParseParams("lt=").Lifetime(7); directory.ProblemOf(err) != directory.BadLifetime {
		t.Errorf("an empty lifetime: %v", err)
	}

	for values, want := range map[string]string{
		"": "false", "false": "false", "true": "true", "yes": "", "true,true": "", "false,false": "", "true,false": "",
	} {
		var given []string
		if values != "" {
			given = strings.Split(values, ",")
		}

		brief, err := Brief(given)
		if err != nil && want != "" || err == nil && fmt.Sprint(brief) != want {
			t.Errorf("brief of %q is %t, %v", values, brief, err)
		}
	}
}

// The link to the next page has the parameters that the route knows, as they came, and goes on after the cursor.
//
// Requirement: AD-065, AD-066
func TestTheNextLinkGoesOn(t *testing.T) {
	after := index.Cursor{}
	query := "agent=a*&x=1&tag=a%2Bb&page=2&tag=c%26&after=old"

	for page, want := range map[string]string{
		"3": `</ad/l?agent=a*&tag=a%2Bb&tag=c%26&page=3&after=` + after.String() + `>; rel="next"`,
		"":  `</ad/l?agent=a*&tag=a%2Bb&tag=c%26&after=` + after.String() + `>; rel="next"`,
	} {
		got := ParseParams(query).NextLink("/ad/l", []string{"agent", "tag", "page", "after"}, page, after)
		if got != want {
			t.Errorf("page %q: %s, want %s", page, got, want)
		}
	}

	for query, ok := range map[string]bool{"": true, "after=": true, "after=!": false, "after=%zz": false} {
		if _, err := ParseParams(query).Cursor(); (err == nil) != ok {
			t.Errorf("the cursor of %q: %v", query, err)
		}
	}
}

// A credential that was sent is used or refused, never ignored.
//
// Requirement: TRUST-005
func TestEachCredentialIsUsedOrRefused(t *testing.T) {
	for _, x := range []struct {
		auth, wit []string
		want      string
	}{
		{nil, nil, "{  }"},
		{[]string{"Bearer t"}, nil, "{  t}"},
		{[]string{" bearer   t\t"}, nil, "{  t}"},
		{[]string{"WPT p"}, []string{" w "}, "{w p }"},
		{[]string{"wpt p"}, nil, "{ p }"},
		{nil, []string{"w"}, "{w  }"},
		{nil, []string{"w", "w"}, "unauthenticated"},
		{[]string{"Bearer t", "Bearer t"}, nil, "unauthenticated"},
		{[]string{"Bearer"}, nil, "unauthenticated"},
		{[]string{"Bearer t u"}, nil, "unauthenticated"},
		{[]string{"Bearer t,u"}, nil, "unauthenticated"},
		{[]string{"Basic t"}, nil, "unauthenticated"},
		{[]string{""}, nil, "unauthenticated"},
	} {
		header := http.Header{}
		if x.auth != nil {
			header["Authorization"] = x.auth
		}

		if x.wit != nil {
			header["Workload-Identity-Token"] = x.wit
		}

		tokens, err := TokensOf(&http.Request{Header: header})

		got := fmt.Sprint(tokens)
		if err != nil {
			got = string(directory.ProblemOf(err))
		}

		if got != x.want || HasToken(header) != (len(header) > 0) {
			t.Errorf("%q and %q: %s, want %s", x.auth, x.wit, got, x.want)
		}
	}

	all := AcceptedCredentials{WPT: true, JWTSVID: true, Issuers: []string{"https://issuer.test"}}
	for want, accepted := range map[string]AcceptedCredentials{
		"[x509-svid]": {}, "[x509-svid wpt oauth jwt-svid]": all, "[x509-svid jwt-svid]": {JWTSVID: true},
	} {
		if got := fmt.Sprint(accepted.Methods()); got != want {
			t.Errorf("%+v accepts %s, want %s", accepted, got, want)
		}
	}
}

// Each part of a request without effect is named once, as long as the header is not sent.
func TestAnIgnoredPartIsNamedOnce(t *testing.T) {
	call := &Call{AnswerHeader: http.Header{}}
	for _, name := range []string{"a", "b", "a"} {
		call.Ignore(wire.Ignored{Name: name})
	}

	if got := wire.ParseIgnored(call.AnswerHeader[wire.HeaderIgnored]); len(got) != 2 ||
		got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("named are %v", call.AnswerHeader)
	}

	call.AnswerHeader = nil
	call.Ignore(wire.Ignored{Name: "c"})
}
