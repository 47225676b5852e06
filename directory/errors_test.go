package directory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// A refusal quotes at most 64 bytes of one text, whichever verb and error has quoted it.
//
// Requirement: SEC-018
func TestQuotedTextIsCut(t *testing.T) {
	long, zeros := strings.Repeat("é", 3000), strings.Repeat("\x00", 100)
	cause := errors.New(`unknown member "` + long + `" within "/a"`)

	for _, c := range []struct {
		got  *directory.Error
		want string
	}{
		{directory.Refuse(directory.BadRequest, "no agent %q here, but %q", long, "ada"),
			`no agent "` + long[:64] + `…" here, but "ada"`},
		{directory.Refuse(directory.BadRequest, "the body: %w", cause),
			`the body: unknown member "` + long[:64] + `…" within "/a"`},
		{directory.Refuse(directory.BadRequest, "no agent %q", zeros),
			`no agent "` + strings.Repeat(`\x00`, 16) + `…"`},
		{directory.Refuse(directory.BadRequest, "no agent %q", strings.Repeat(`"`, 64)),
			`no agent "` + strings.Repeat(`\"`, 32) + `…"`},
		{directory.Refuse(directory.BadRequest, "%q is as long as may be", long[:64]),
			`"` + long[:64] + `" is as long as may be`},
		{directory.Refuse(directory.BadRequest, "an open quote: %s", `"`+long), `an open quote: "` + long},
	} {
		if c.got.Detail != c.want {
			t.Errorf("%s\nwant %s", c.got.Detail, c.want)
		}
	}

	at := directory.Refuse(directory.BadRequest, "no").At("/filters/" + long)
	if at.Pointer != "/filters" || at.At("/a/b").Pointer != "/a/b" {
		t.Errorf("the pointers are %q and %q", at.Pointer, at.At("/a/b").Pointer)
	}

	if refused := directory.Refuse(directory.BadRequest, "the body: %w", cause); !errors.Is(refused, cause) {
		t.Error("the cause is lost")
	}
}
