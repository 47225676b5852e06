package kinds

import (
	"errors"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: FLD-008
func TestNoURLOfADocumentHasAUserName(t *testing.T) {
	for _, c := range []struct {
		kind          directory.Kind
		body, pointer string
	}{
		{directory.KindAD, `{"base":"https://bank.example@evil.example/a2a"}`, "/base"},
		{directory.KindAD, `{"base":"https://u:secret@a.test/a b"}`, "/base"},
		{directory.KindAD, `{"base":"https://u:se/cret@a.test"}`, "/base"},
		{directory.KindAD, `{"base":"amqp://u:secret@a.test"}`, "/base"},
		{directory.KindAD, `{"base":"https://a.test","docs":["https:\/\/u:secret\u0040a.test"]}`, "/docs/0"},
		{directory.KindAD, `{"base":"https://a.test","imported_from":{"source":"HTTPS://secret@a.test"}}`,
			"/imported_from/source"},
		{directory.KindA2A, `{"name":"U","url":"https://secret@evil.example/a2a","skills":[]}`, "/url"},
		{directory.KindA2A, `{"name":"U","url":"https://a.test","iconUrl":"https://u:secret@a.test"}`, "/iconUrl"},
		{directory.KindMCP, `{"name":"a/b","remotes":[{"type":"sse","url":"https://u:secret@a.test"}]}`,
			"/remotes/0/url"},
	} {
		document, err := directory.ParseDocument(c.kind, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}

		_, err = Project("a", document)

		var refusal *directory.Error
		if !errors.As(err, &refusal) || refusal.Pointer != c.pointer || strings.Contains(refusal.Detail, "secret") ||
			!strings.Contains(refusal.Detail, "user name") {
			t.Errorf("%s: %v", c.body, err)
		}

		projection, err := Reproject("a", document)
		if err != nil || strings.Contains(projection.Base, "secret") {
			t.Errorf("%s is projected to the base %q: %v", c.body, projection.Base, err)
		}
	}

	for _, body := range []string{
		`{"base":"https://registry.test/@scope/name"}`, `{"base":"mailto:me@a.test"}`,
		`{"base":"https://a.test","contact":"me@a.test","more":"see https://u:p@a.test"}`,
		`{"base":"https://[fe80::1%25eth0]:8443/x"}`, `{"base":"https://a.test:65535"}`,
	} {
		document, err := directory.ParseDocument(directory.KindAD, []byte(body))
		if err == nil {
			_, err = Project("a", document)
		}

		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}
