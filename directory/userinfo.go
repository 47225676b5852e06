package directory

import (
	"regexp"
	"strings"
)

// hiddenUserinfo stands in place of a user name or password in a URL.
const hiddenUserinfo = "…@"

// userinfo is the name or password before a host (RFC 9110, 4.2.4). The second form is one whose
// password has a slash or a question mark, so that the host seems to have a port of other characters
// than digits.
var userinfo = regexp.MustCompile(`//(?:[^\s/?#"'<>\\]*|[^\s/?#"'<>\\:@\[\]]*:[0-9]*[^\s/?#"'<>\\@0-9][^\s"'<>\\]*)@`)

// HideUserinfo returns text without the user names and passwords in its URLs, for messages and
// logs that quote a URL.
func HideUserinfo(text string) string {
	if !strings.Contains(text, "@") || !strings.Contains(text, "//") {
		return text
	}

	return userinfo.ReplaceAllString(text, "//"+hiddenUserinfo)
}

// HasUserinfo reports whether a URL in text has a user name or a password.
func HasUserinfo(text string) bool { return HideUserinfo(text) != text }
