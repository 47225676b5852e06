package index_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
)

func parseQuery(t testing.TB, raw string) (index.Query, error) {
	t.Helper()

	v, err := url.ParseQuery(raw)
	directorytest.Must(t, err)

	return index.ParseQuery(v)
}

// Requirement: AD-026, AD-028, AD-030, AD-059, AD-060, AD-061
func TestParseQuery(t *testing.T) {
	whole := func(s string) []index.Pattern { return []index.Pattern{{Text: s}} }

	after := index.Cursor{Created: 7, RID: rid(7)}
	for raw, want := range map[string]index.Query{
		"":                       {Count: 100},
		"agent=a&unknown=*x*&=1": {Count: 100, Agent: whole("a")},
		"agent=a*":               {Count: 100, Agent: []index.Pattern{{Text: "a", Prefix: true}}},
		"agent=*":                {Count: 100, Agent: []index.Pattern{{Prefix: true}}},
		"agent=":                 {Count: 100, Agent: whole("")},
		"Agent=a&CAP_NAME=b":     {Count: 100},
		"cap_name=purge*&cap_name=x&cap_type=tool&tag=a&tag=b": {Count: 100,
			CapName: []index.Pattern{{Text: "purge", Prefix: true}, {Text: "x"}},
			CapType: []string{"tool"}, Tag: []string{"a", "b"}},
		"protocol=mcp*&tag=*&status=a*b&cap_type=**": {Count: 100, Protocol: []string{"mcp*"}, Tag: []string{"*"},
			Status: []string{"a*b"}, CapType: []string{"**"}},
		"language=en&status=active": {Count: 100, Language: []string{"en"},
			Status: []string{"active"}},
		"agent=e%CC%81+b%2Bc%2525":            {Count: 100, Agent: whole("\u00e9 b+c%25")},
		"count=1&page=3":                      {Count: 1, Page: 3, Skip: 3},
		"count=100000000000000000000&page=2":  {Count: 100, Page: 2, Skip: 200},
		"count=101":                           {Count: 100},
		"page=9999&count=100":                 {Count: 100, Page: 9999, Skip: 999900},
		"scope=domain&origin=beta.test":       {Count: 100, OwnOnly: true, Origin: beta},
		"scope=mesh&after=":                   {Count: 100},
		"page=123456&after=" + after.String(): {Count: 100, Page: 123456, After: after},
	} {
		q, err := parseQuery(t, raw)
		if err != nil || !reflect.DeepEqual(q, want) {
			t.Errorf("%q: got %+v, %v\nwant %+v", raw, q, err, want)
		}
	}

	for _, raw := range []string{
		"agent=*a", "agent=a**", "agent=a*b", "cap_name=*x*", "agent=%FF", "tag=%C0%AF", "count=0", "count=-1",
		"count=", "count=a", "count=1.5", "count=0x10",
		"page=-1", "page=a", "page=", "page=10000", "page=99999999999999999999", "count=5&count=5", "page=1&page=2",
		"scope=", "scope=world", "scope=Domain",
		"origin=", "origin=BETA.test", "origin=spiffe://beta.test", "origin=a&origin=b", "after=x", "after=%20",
		"after=AAAA", "after=&after=", strings.Repeat("tag=x&", 65),
	} {
		_, err := parseQuery(t, raw)
		wantRefusal(t, err, directory.BadQuery, "")
	}
}

// Requirement: AD-032
func TestCursorHasOneText(t *testing.T) {
	for _, c := range []index.Cursor{{}, {Created: 1, RID: rid(1)}, {Created: 1 << 63, RID: rid(2)},
		{Origin: beta, RID: rid(3)}} {
		text, err := c.MarshalText()
		if err != nil || url.QueryEscape(string(text)) != string(text) || c.String() != string(text) {
			t.Errorf("%+v is %q, %v", c, text, err)
		}

		var back index.Cursor
		if err := back.UnmarshalText(text); err != nil || back != c || c.IsZero() != (len(text) == 0) {
			t.Errorf("%q: got %+v, %v", text, back, err)
		}

		for _, bad := range []string{string(text) + "A", string(text) + "=", string(text) + "\n", "x" + string(text)} {
			if err := back.UnmarshalText([]byte(bad)); err == nil || !back.IsZero() {
				t.Errorf("%q was taken for a cursor: %+v", bad, back)
			}
		}
	}
}

// Requirement: AD-029
func TestFiltersMatchJointly(t *testing.T) {
	v := index.NewView(alpha)
	put := func(n int, agent, body string) {
		d := mustDocument(t, directory.KindAD, body)
		v.Own().Put(entry(alpha, n, agent, mustProject(t, agent, d)))
	}
	put(1, "apart",
		`{"base":"https://a.test","capabilities":[{"name":"run","type":"tool"},{"name":"find","type":"skill","tags":["search","web"]}]}`)
	put(2, "joint",
		`{"base":"https://a.test","protocols":["mcp/1.0"],"capabilities":[{"name":"seek","type":"tool","tags":["search"]}]}`)
	put(3, "agent-tag",
		`{"base":"https://a.test","tags":["search"],"capabilities":[{"name":"go","type":"tool","tags":["web"]}]}`)
	put(4, "bare", `{"base":"https://a.test","tags":["search"],"protocols":["mcp"],"status":"inactive"}`)

	for raw, want := range map[string]string{
		"":                               "apart joint agent-tag bare",
		"cap_type=tool&tag=search":       "joint agent-tag",
		"cap_type=skill&tag=search":      "apart",
		"cap_name=run&cap_type=skill":    "",
		"tag=search&tag=web":             "apart agent-tag",
		"tag=search":                     "apart joint agent-tag bare",
		"cap_name=*":                     "apart joint agent-tag",
		"cap_name=*&tag=web":             "apart agent-tag",
		"cap_name=":                      "",
		"agent=":                         "",
		"tag=":                           "",
		"agent=*":                        "apart joint agent-tag bare",
		"agent=a*":                       "apart agent-tag",
		"agent=apart*":                   "apart",
		"cap_name=s*&cap_name=*k":        "!",
		"cap_name=s*&cap_name=seek":      "joint",
		"cap_name=f*&cap_name=r*":        "",
		"protocol=mcp":                   "bare",
		"protocol=mcp*":                  "",
		"protocol=mcp/1.0":               "joint",
		"protocol=MCP":                   "",
		"status=active":                  "apart joint agent-tag",
		"status=inactive":                "bare",
		"status=inactive&cap_name=*":     "",
		"origin=alpha.test&scope=domain": "apart joint agent-tag bare",
		"origin=beta.test":               "",
		"origin=beta.test&scope=domain":  "",
		"language=en":                    "",
		"count=2":                        "apart joint",
		"count=2&page=1":                 "agent-tag bare",
		"count=2&page=2":                 "",
		"count=1&page=2&tag=search":      "agent-tag",
	} {
		q, err := parseQuery(t, raw)
		if want == "!" {
			wantRefusal(t, err, directory.BadQuery, "")
			continue
		}

		var got []string
		for _, e := range v.Lookup(q, nil).Entries {
			got = append(got, e.Agent)
		}

		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: got %v, %v; want %s", raw, got, err, want)
		}
	}
}

// Members that are withheld from a reader match none of its filters.
//
// Requirement: AD-043
func TestWithheldMembersMatchNothing(t *testing.T) {
	v := index.NewView(alpha)
	v.Own().Put(entry(alpha, 1, "x", &directory.Projection{Tags: []string{"shown", "withheld"}}))

	redacted := entry(alpha, 1, "x", &directory.Projection{Tags: []string{"shown"}})
	show := func(*directory.Entry) *directory.Entry { return redacted }

	for tag, want := range map[string]int{"shown": 1, "withheld": 0} {
		if got := v.Lookup(index.Query{Tag: []string{tag}}, show).Entries; len(got) != want {
			t.Errorf("tag %s: found %d, want %d", tag, len(got), want)
		}
	}
}

// A final full page has no next.
//
// Requirement: AD-066
func TestTheLastPageHasNoNext(t *testing.T) {
	v := index.NewView(alpha)
	for n := range 4 {
		v.Own().Put(entry(alpha, n, "x", &directory.Projection{}))
	}

	for skip, more := range map[int]bool{0: true, 1: true, 2: false, 3: false, 4: false} {
		if p := v.Lookup(index.Query{Count: 2, Skip: skip}, nil); p.More != more || p.Next.IsZero() == more {
			t.Errorf("behind %d: more is %v", skip, p.More)
		}
	}
}
