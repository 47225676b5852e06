package directory_test

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: FLD-008
func TestUserinfoIsHidden(t *testing.T) {
	for text, want := range map[string]string{
		"https://bank.example@evil.example/a2a":         "https://…@evil.example/a2a",
		`invalid "https://u:secret@a.test:8400"; retry`: `invalid "https://…@a.test:8400"; retry`,
		"https://u:se/cret@a.test":                      "https://…@a.test",
		"https://u:secret?x@a.test":                     "https://…@a.test",
		"https://u:12secret/@a.test/x":                  "https://…@a.test/x",
		"a //u@x and https://v:w@y":                     "a //…@x and https://…@y",
		"https://registry.example/@scope/name":          "https://registry.example/@scope/name",
		"https://a.test:8400/@scope":                    "https://a.test:8400/@scope",
		"https://[::1]:8400/@scope":                     "https://[::1]:8400/@scope",
		"shout@beta.test":                               "shout@beta.test",
		"oauth:https://issuer.example#user@issuer":      "oauth:https://issuer.example#user@issuer",
		"https://a.test/x?mail=me@a.test":               "https://a.test/x?mail=me@a.test",
		"pkg:npm/@example/observability-mcp@1.0.0":      "pkg:npm/@example/observability-mcp@1.0.0",
		"ID@HOST, such as weather@api.example.com":      "ID@HOST, such as weather@api.example.com",
	} {
		if got := directory.HideUserinfo(text); got != want {
			t.Errorf("HideUserinfo(%q) = %q, want %q", text, got, want)
		}

		if has := directory.HasUserinfo(text); has != (text != want) {
			t.Errorf("HasUserinfo(%q) = %t", text, has)
		}
	}
}

// Requirement: FLD-008
func TestARefusalShowsNoUserinfo(t *testing.T) {
	err := directory.Refuse(directory.BadRequest, "an address must be https, got %q", "http://u:secret@a")
	if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "//…@a") {
		t.Errorf("got %q", err.Error())
	}
}
