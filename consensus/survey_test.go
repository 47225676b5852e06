package consensus

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/message"
)

// A domain begins only once each of its nodes has found exactly the same ones: otherwise others might begin a
// second one.
func TestNodesThatFoundOthersBeginNoDomain(t *testing.T) {
	member := func(path string) Member {
		return Member{ID: spiffeid.RequireFromString("spiffe://alpha.test" + path), Address: path[1:] + ":1"}
	}
	one, two, three := member("/a"), member("/b"), member("/c")
	found := []Member{one, two}

	for what, c := range map[string]struct {
		word message.JoinRequest
		ok   bool
	}{
		"the same":                         {message.JoinRequest{Found: found}, true},
		"none yet":                         {message.JoinRequest{}, false},
		"one more":                         {message.JoinRequest{Found: []Member{one, two, three}}, false},
		"another":                          {message.JoinRequest{Found: []Member{two, three}}, false},
		"the same, and waits to be let in": {message.JoinRequest{Found: found, Empty: true}, false},
	} {
		s := newSurvey(&Config{}, one.Address)
		s.empty[two.ID] = &c.word

		if err := s.agree(found); (err == nil) != c.ok {
			t.Errorf("%s has found %s: %v", two.ID, what, err)
		}
	}
}
