package directory

import "testing"

// A pattern has whom it says and nobody who is called alike, nor anybody of another
// scheme.
//
// Requirement: TRUST-007
func TestIdentityPatterns(t *testing.T) {
	for _, x := range []struct {
		pattern, id string
		matches     bool
	}{
		{"spiffe://alpha.test/team/*", "spiffe://alpha.test/team/ada", true},
		{"spiffe://alpha.test/team/*", "spiffe://alpha.test/team/a/b", true},
		{"spiffe://alpha.test/team/*", "spiffe://alpha.test/team", false},
		{"spiffe://alpha.test/team/*", "spiffe://alpha.test/teams/ada", false},
		{"spiffe://alpha.test/team/*", "wimse://alpha.test/team/ada", false},
		{"spiffe://alpha.test/*", "spiffe://alpha.test/team/ada", true},
		{"spiffe://alpha.test/*", "spiffe://alpha.test.evil/ada", false},
		{"spiffe://alpha.test/ada", "spiffe://alpha.test/ada", true},
		{"spiffe://alpha.test/ada", "spiffe://alpha.test/ada/x", false},
		{"oauth:https://login.test#*", "oauth:https://login.test#ada", true},
		{"oauth:https://login.test#*", "oauth:https://login.test/x#ada", false},
		{"", "spiffe://alpha.test/ada", false},
		{"", "", false},
		{"spiffe://alpha.test/*", "", false},
	} {
		var (
			p  IdentityPattern
			id Identity
		)

		if err := p.UnmarshalText([]byte(x.pattern)); err != nil {
			t.Fatal(err)
		}

		if err := id.UnmarshalText([]byte(x.id)); err != nil {
			t.Fatal(err)
		}

		if p.Matches(id) != x.matches {
			t.Errorf("%q and %q: %v", x.pattern, x.id, !x.matches)
		}
	}

	for _, bad := range []string{"*", "spiffe://*", "spiffe://alpha.test/te*", "spiffe://alpha.test/*/x",
		"https://alpha.test/*", "oauth:#*", "oauth:https://login.test#te*", "oauth:https://login.test/*"} {
		if p, err := ParseIdentityPattern(bad); err == nil {
			t.Errorf("%q is taken, as %v", bad, p)
		}
	}
}
