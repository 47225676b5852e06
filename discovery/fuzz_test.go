package discovery

import (
	"slices"
	"strings"
	"testing"
)

// A request that is read is within its bounds, and one that isn't changes nothing.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"query":"plan a route","required_tags":["maps"],"limit":3,"constraints":{"region":["eu"],"cost":1}}`))
	f.Add([]byte(`{"query":"a","client_context":{"locale":"de"},"detail":"minimal","expand":true,"strict":false}`))
	f.Add([]byte(`{"query":"\ud800","limit":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			if r != nil {
				t.Fatalf("%q is refused, and read: %v", body, err)
			}

			return
		}

		lists := [][]string{r.RequiredTags, r.PreferredTags, r.ExcludedTags, r.Protocols, r.Constraints.Regions,
			r.Constraints.Origins}
		if strings.TrimSpace(r.Query) == "" || len(r.Query) > MaxQuery || r.Limit < 1 || r.Limit > MaxLimit ||
			r.Constraints.MaxAge < -1 ||
			slices.ContainsFunc(lists, func(l []string) bool {
				return len(l) > MaxFilterValues || slices.Contains(l, "")
			}) {
			t.Fatalf("%q is read as %+v", body, r)
		}
	})
}
