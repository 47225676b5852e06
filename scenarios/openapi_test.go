package scenarios

import (
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
)

// A description is a node's /openapi.json, against which its answers are held.
type description struct {
	doc   *openapi3.T
	paths []described
}

type described struct {
	pattern *regexp.Regexp
	item    *openapi3.PathItem
}

var inTemplate = regexp.MustCompile(`\\\{[^}]*\\\}`)

// readDescription reads the OpenAPI document of the node at url.
func readDescription(t *testing.T, client *http.Client, url string) *description {
	t.Helper()
	got := exchangeOf(t, client, url, "GET", "/openapi.json", "")
	got.want(t, 200)

	doc, err := openapi3.NewLoader().LoadFromData(got.body)
	if err == nil {
		err = doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater())
	}

	if err != nil {
		t.Fatalf("/openapi.json: %v", err)
	}

	d := &description{doc: doc}

	templates := doc.Paths.InMatchingOrder() // fewer variables first
	for _, template := range templates {
		pattern := "^" + inTemplate.ReplaceAllString(regexp.QuoteMeta(template), "[^/]+") + "$"
		d.paths = append(d.paths, described{regexp.MustCompile(pattern), doc.Paths.Value(template)})
	}

	return d
}

// judge returns the difference between an answer and its description. Absent routes are
// described in words only: 404 for a path, 405 for a method, 501 for all.
func (d *description) judge(method, target string, a *answer) error {
	path, _, _ := strings.Cut(target, "?")

	i := slices.IndexFunc(d.paths, func(p described) bool { return p.pattern.MatchString(path) })
	if i < 0 {
		return expect(a, http.StatusNotFound, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge,
			http.StatusNotImplemented)
	}

	if method == http.MethodHead {
		method = http.MethodGet
	}

	op := d.paths[i].item.Operations()[method]
	switch {
	case method == http.MethodOptions:
		return expect(a, http.StatusNoContent)
	case op == nil:
		return expect(a, http.StatusMethodNotAllowed, http.StatusNotImplemented)
	}

	want := op.Responses.Value(strconv.Itoa(a.status))
	if want == nil {
		return fmt.Errorf("/openapi.json has no status %d here", a.status)
	}

	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if len(a.body) == 0 {
		return nil
	}

	content := want.Value.Content[media]
	if content == nil {
		return fmt.Errorf("/openapi.json has no %s for %d here", media, a.status)
	}

	if !strings.HasSuffix(media, "json") {
		return nil
	}

	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		return err
	}

	if problem := problemOf(a); a.status >= 400 && !strings.Contains(*want.Value.Description, "`"+problem+"`") {
		return fmt.Errorf("/openapi.json has no problem %s for %d here", problem, a.status)
	}

	if err := d.doc.ValidateSchemaJSON(content.Schema.Value, v, openapi3.EnableJSONSchema2020()); err != nil {
		return fmt.Errorf("/openapi.json describes another body: %w", err)
	}

	return nil
}

func expect(a *answer, statuses ...int) error {
	if !slices.Contains(statuses, a.status) {
		return fmt.Errorf("status %d is described for no operation", a.status)
	}

	return nil
}
