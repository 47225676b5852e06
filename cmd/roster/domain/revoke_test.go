package domain

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// An identity that was unblocked by commenting the policy out is blocked again.
//
// Requirement: AD-070
func TestBlockingAgain(t *testing.T) {
	eve, err := directory.ParseIdentity("spiffe://alpha.test/agent/eve")
	must(t, err)

	const name, before = "revoked spiffe://alpha.test/agent/eve", "permit (principal, action, resource);"

	text, is := addBlock(before, name, eve)
	if is || !strings.HasPrefix(text, before) {
		t.Fatalf("%v: %s", is, text)
	}

	if again, is := addBlock(text, name, eve); !is || again != text {
		t.Errorf("what is forbidden is forbidden again: %s", again)
	}

	for _, lifted := range []string{strings.ReplaceAll(text, "\n@id", "\n// @id"),
		strings.ReplaceAll(text, "\nforbid", "\n// forbid"), strings.ReplaceAll(text, "forbid (", "permit (")} {
		if again, is := addBlock(lifted, name, eve); is || !strings.Contains(again, text[len(before)+1:]) {
			t.Errorf("%v: %s", is, again)
		}
	}
}
